// Floats of eight bits and fewer, and powers of two.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::kernel {

// Sign, exponent and mantissa in a byte; no infinities. Beyond the largest value comes the largest value.
struct SmallFloat {
  int mantissa_bits;
  int bias;
  unsigned largest;  // the code of the largest value, without sign
  int bits;          // of a code; the sign is the highest
};
// Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433; Rouhani et al., arXiv:2310.10537 (e2m1).
inline constexpr SmallFloat e4m3{.mantissa_bits = 3, .bias = 7, .largest = 0x7E, .bits = 8};   // to 448
inline constexpr SmallFloat e5m2{.mantissa_bits = 2, .bias = 15, .largest = 0x7B, .bits = 8};  // to 57344
inline constexpr SmallFloat e2m1{.mantissa_bits = 1, .bias = 1, .largest = 0x7, .bits = 4};    // to 6

// The code of each value * factor, round to nearest even, denormals kept. `factor` is a power of two.
void to_small_float(const SmallFloat&, const float* values, float factor, std::size_t count, std::uint8_t* codes);
// The value that a code stands for; every byte means something, NaN excepted: those of e4m3 and e5m2 are read as 0.
float from_small_float(const SmallFloat&, std::uint8_t code);

// The sign and the exponent of each value, which is rounded to one of the two powers of two beside it with the
// probabilities that make the expectation exact. Codes: 0 is 0; else the sign in the highest bit and
// 1 + top - exponent below it, where `top` (a biased exponent) is at least every value's exponent + 1. What lies
// more than 126 powers below becomes 0.
void to_powers(const float* values, std::size_t count, unsigned top, std::uint32_t seed, std::uint8_t* codes);
void from_powers(const std::uint8_t* codes, std::size_t count, unsigned top, float* values);

}  // namespace ranvier::kernel
