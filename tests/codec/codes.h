// What tests of codecs share: kinds of values, and encoding in a line.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ranvier/codec.h"

namespace ranvier::testing {

using Values = std::vector<float>;
using Code = std::vector<std::byte>;

enum class Kind { normal, equal, zero, outlier, denormal, skewed };
inline constexpr Kind all_kinds[] = {Kind::normal,  Kind::equal,    Kind::zero,
                                     Kind::outlier, Kind::denormal, Kind::skewed};

inline Values values_of(Kind kind, std::size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) switch (kind) {
      case Kind::normal:
        values[i] = 0.01F * normal(random);
        break;
      case Kind::equal:
        values[i] = -0.375F;
        break;
      case Kind::zero:
        values[i] = i % 2 == 0 ? 0.0F : -0.0F;
        break;
      case Kind::outlier:
        values[i] = i == count / 2 ? 1e6F : 0.01F * normal(random);
        break;
      case Kind::denormal:
        values[i] = std::ldexp(normal(random), -140);
        break;
      case Kind::skewed:  // as gradients are: many zeros, few large ones
        values[i] = random() % 2 == 0 ? 0 : normal(random) * std::exp2(-static_cast<float>(random() % 12));
        break;
    }
  return values;
}

inline Code encoded(const Codec& codec, const Values& values, std::uint64_t seed = 7, const CodecState& state = {}) {
  Code code(codec.max_bytes(values.size()));
  code.resize(codec.encode(values, state, code, {.seed = seed}));
  return code;
}

inline Values decoded(const Codec& codec, const Code& code, std::size_t count) {
  Values values(count, std::numeric_limits<float>::quiet_NaN());
  codec.decode(code, values);
  return values;
}

inline double norm(const Values& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}
inline Values difference(const Values& a, const Values& b) {
  Values result(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) result[i] = a[i] - b[i];
  return result;
}

}  // namespace ranvier::testing
