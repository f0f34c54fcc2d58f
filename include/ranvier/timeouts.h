// Timeouts of any length: milliseconds::max() or timedelta.max for "never", and others that overflow where nanoseconds
// are counted.
#pragma once

#include <algorithm>
#include <chrono>

namespace ranvier {

// At most 100 years: of the 292 that a deadline has room for, some may be added.
template <class Rep, class Period>
constexpr std::chrono::duration<Rep, Period> bounded(std::chrono::duration<Rep, Period> timeout) {
  constexpr std::chrono::duration<Rep, Period> longest = std::chrono::hours(100 * 365 * 24);
  return std::clamp(timeout, -longest, longest);
}

}  // namespace ranvier
