// Vector loops over typed memory, with run-time choice of the instruction set (Highway). Plain functions, no state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ranvier/types.h"

namespace ranvier::kernel {

// to[i] = (a[i] op b[i]) for count elements; `average` adds, then multiplies by 1/divisor (floats, rounded once) or
// divides rounding towards zero (integers). Any other op ignores divisor; pass 0 to get a plain sum for `average`.
// `to` may be a or b exactly; otherwise they do not overlap. No alignment is needed.
// f16 and bf16 are added in f32 and rounded to nearest even once. Integers wrap. Booleans: sum and max are or, product
// and min are and, average is not defined (throws Error{usage}). NaN: an operand that is NaN makes min and max NaN, as in
// torch.
void reduce(ReduceOp op, DType type, void* to, const void* a, const void* b, std::size_t count, Rank divisor);
using ReduceFunction = void (*)(void* to, const void* a, const void* b, std::size_t count, Rank divisor);
// The loop behind reduce(), to be looked up once per operation. Throws Error{usage} where is_defined(op, type) is false.
ReduceFunction reduce_function(ReduceOp op, DType type);

// f32 <-> bf16 and f16, round to nearest even, NaN stays NaN, denormals kept.
void to_bf16(const float* from, std::uint16_t* to, std::size_t count);
void from_bf16(const std::uint16_t* from, float* to, std::size_t count);
void to_f16(const float* from, std::uint16_t* to, std::size_t count);
void from_f16(const std::uint16_t* from, float* to, std::size_t count);

// The instruction set in use, for doctor: "AVX3_ZEN4", "AVX2", …
const char* instruction_set();

}  // namespace ranvier::kernel
