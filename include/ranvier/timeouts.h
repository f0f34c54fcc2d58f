// Timeouts as Python gives them: timedelta.max for "never", and what overflows where nanoseconds are counted.
#pragma once

#include <algorithm>
#include <chrono>

namespace ranvier::pytorch {

// At most 100 years: of the 292 that a deadline has room for, some may be added.
constexpr std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) {
  return std::min<std::chrono::milliseconds>(timeout, std::chrono::hours(100 * 365 * 24));
}

}  // namespace ranvier::pytorch
