// Scales in codes: f32, of any alignment, and exponents.
#pragma once

#include <cstddef>

namespace ranvier {

// Throws Error{mismatch} for a scale that no encoder writes: negative, NaN, infinite or beyond 2^100.
float read_scale(const std::byte* at);
// The same of a power of two, by its biased exponent: 1 to 227, which is 2^100.
unsigned read_exponent(std::byte);

}  // namespace ranvier
