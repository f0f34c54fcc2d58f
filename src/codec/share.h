// How many values a sparsifier sends of a vector.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ranvier {

// At least one of a vector that is not empty.
inline std::size_t share_of(std::size_t count, double ratio) {
  return std::clamp<std::size_t>(static_cast<std::size_t>(std::lround(static_cast<double>(count) * ratio)),
                                 std::min<std::size_t>(count, 1), count);
}

}  // namespace ranvier
