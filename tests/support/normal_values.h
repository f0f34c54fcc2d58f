// Values that are distributed normally, the same ones for a seed.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace ranvier::support {

inline std::vector<float> normal_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace ranvier::support
