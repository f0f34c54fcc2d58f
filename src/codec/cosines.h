// The orthonormal cosines of the discrete cosine transform (type II), as tables of size x size.
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace ranvier {

struct Cosines {
  std::vector<float> by_cosine;  // row k: cosine k at all places
  std::vector<float> by_place;   // row i: all cosines at place i
};

inline Cosines cosines_of(std::size_t size) {
  Cosines tables{.by_cosine = std::vector<float>(size * size), .by_place = std::vector<float>(size * size)};
  for (std::size_t k = 0; k < size; ++k)
    for (std::size_t i = 0; i < size; ++i) {
      const auto places = static_cast<double>(size);
      const double angle = std::numbers::pi / places * (static_cast<double>(i) + 0.5) * static_cast<double>(k);
      const auto value = static_cast<float>(std::sqrt((k == 0 ? 1.0 : 2.0) / places) * std::cos(angle));
      tables.by_cosine[k * size + i] = tables.by_place[i * size + k] = value;
    }
  return tables;
}

}  // namespace ranvier
