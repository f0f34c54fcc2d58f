// Transposes matrices of floats, as many rows and columns at a time in registers as one of them has lanes.
#pragma once

#include <cstddef>

namespace ranvier::kernel {

// to[j * to_stride + i] = from[i * from_stride + j] for all rows i and columns j; they do not overlap.
void transpose(const float* from, std::size_t rows, std::size_t columns, std::size_t from_stride, float* to,
               std::size_t to_stride);

}  // namespace ranvier::kernel
