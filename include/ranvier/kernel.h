// Vector loops over typed memory, with run-time choice of the instruction set (Highway). Plain functions, no state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ranvier/types.h"

namespace ranvier::kernel {

// to[i] = (a[i] op b[i]) for count elements. `average` adds, then divides, integers rounding towards zero; a divisor
// below 2 gives a plain sum. Any other op ignores divisor.
// `to` may be a or b exactly; otherwise they do not overlap. No alignment is needed.
// f16 and bf16 are computed in f32 and rounded to nearest even once. Integers wrap. Booleans (bytes 0 and 1): sum and
// max are or, product and min are and, average is not defined (throws Error{usage}). Float min and max are those of
// IEEE 754-2019: an operand that is NaN makes the result NaN, as in torch, and -0 < +0, so that the order of operands
// does not show in the result.
void reduce(ReduceOp op, DType type, void* to, const void* a, const void* b, std::size_t count, Rank divisor);
using ReduceFunction = void (*)(void* to, const void* a, const void* b, std::size_t count, Rank divisor);
// The loop behind reduce(), to be looked up once per operation. Throws Error{usage} where op is not defined on type.
ReduceFunction reduce_function(ReduceOp op, DType type);

// f32 <-> bf16 and f16, round to nearest even, NaN stays NaN, denormals kept. `from` and `to` do not overlap; the
// 16-bit side is bytes on a wire, of any alignment.
void to_bf16(const float* from, void* to, std::size_t count);
void from_bf16(const void* from, float* to, std::size_t count);
void to_f16(const float* from, void* to, std::size_t count);
void from_f16(const void* from, float* to, std::size_t count);

// The instruction set in use, in Highway's words, for doctor: "AVX3" (AVX-512), "AVX2", …
const char* instruction_set();

}  // namespace ranvier::kernel
