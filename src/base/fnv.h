// FNV-1a, 64 bits (Fowler, Noll and Vo): the same on every host, and enough to tell apart what nobody forges.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ranvier/types.h"

namespace ranvier {

// `before`: of what stood in front of these bytes.
inline std::uint64_t fnv1a(ConstBytes bytes, std::uint64_t before = 0xcbf29ce484222325) {
  std::uint64_t hash = before;
  for (const std::byte each : bytes) hash = (hash ^ static_cast<std::uint64_t>(each)) * 0x100000001b3;
  return hash;
}
inline std::uint64_t fnv1a(std::string_view text) { return fnv1a(std::as_bytes(std::span(text))); }

}  // namespace ranvier
