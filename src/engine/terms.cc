#include "engine/terms.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace ranvier::engine {

Terms Terms::of(const TransportTraits& traits, bool crowded, double link_bytes_per_second) {
  return {.slice_bytes = std::bit_floor(traits.slice_bytes),
          .buffered_bytes = traits.buffered_bytes,
          .crowded = crowded || traits.crowded(),
          .least_seconds_per_byte = link_bytes_per_second > 0 ? 1 / link_bytes_per_second : 0};
}

Terms agree(const Terms& own, const std::function<void(const Request&)>& run) {
  constexpr std::int64_t unpaced = std::numeric_limits<std::int64_t>::max();
  std::array<std::int64_t, 4> least{
      static_cast<std::int64_t>(own.slice_bytes), static_cast<std::int64_t>(own.buffered_bytes), own.crowded ? 0 : 1,
      own.least_seconds_per_byte > 0 ? std::llround(1 / own.least_seconds_per_byte) : unpaced};
  run({.input = least, .output = least, .op = ReduceOp::min});
  return {.slice_bytes = static_cast<std::size_t>(least[0]),
          .buffered_bytes = static_cast<std::size_t>(least[1]),
          .crowded = least[2] == 0,
          .least_seconds_per_byte = least[3] == unpaced ? 0 : 1 / static_cast<double>(least[3])};
}

}  // namespace ranvier::engine
