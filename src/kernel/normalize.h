// Values over what is usual in their place, see exchange/normalized.h: the same bits on every machine.
#pragma once

#include <cstddef>

namespace ranvier::kernel {

// values /= d, where d = usual * factor, but at least 1, so that nothing becomes larger by it, and at most 2^60.
void divide_by_usual(float* values, const float* usual, float factor, std::size_t count);
// values *= d.
void multiply_by_usual(float* values, const float* usual, float factor, std::size_t count);
// usual += (|values| - usual) / 128, but where a value is not finite.
void follow_magnitudes(const float* values, float* usual, std::size_t count);

}  // namespace ranvier::kernel
