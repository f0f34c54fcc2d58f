// Scales in codes: f32, of any alignment.
#pragma once

#include <cstddef>

namespace ranvier {

// Throws Error{mismatch} for a scale that no encoder writes: NaN, infinite or beyond 2^100.
float read_scale(const std::byte* at);

}  // namespace ranvier
