// What the kernels must compute, one element at a time, in arithmetic that shares nothing with them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ranvier/types.h"

namespace ranvier::testing {

// A binary floating-point format of 16 bits.
struct Format16 {
  int mantissa_bits;
  int bias;
};
inline constexpr Format16 bf16_format{7, 127};
inline constexpr Format16 f16_format{10, 15};

std::uint16_t narrow(float value, Format16);  // round to nearest even
float widen(std::uint16_t bits, Format16);

// One element: *to = *a op *b. Nothing needs to be aligned.
void reduce_one(ReduceOp, DType, std::byte* to, const std::byte* a, const std::byte* b, Rank divisor);

// The same bits, or NaN both.
bool same(DType, const std::byte* a, const std::byte* b);

}  // namespace ranvier::testing
