#include "kernel/transpose.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/transpose.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

// The compiler's own vectors, as in hadamard.cc.
constexpr std::size_t row = 16;
using Row = float __attribute__((vector_size(row * sizeof(float))));

// Of rows k and k + stride the upper lanes of the one and the lower lanes of the other change places, in each group of
// 2 * stride lanes.
#define RANVIER_EXCHANGE(x, stride)                                                                                  \
  for (std::size_t k = 0; k < row; ++k) {                                                                            \
    if ((k & (stride)) != 0) continue;                                                                               \
    constexpr auto u = [](int l) { return (l & (stride)) == 0 ? l : 16 + l - (stride); };                            \
    constexpr auto v = [](int l) { return (l & (stride)) == 0 ? l + (stride) : 16 + l; };                            \
    const Row upper = __builtin_shufflevector((x)[k], (x)[k + (stride)], u(0), u(1), u(2), u(3), u(4), u(5), u(6),   \
                                              u(7), u(8), u(9), u(10), u(11), u(12), u(13), u(14), u(15));           \
    (x)[k + (stride)] = __builtin_shufflevector((x)[k], (x)[k + (stride)], v(0), v(1), v(2), v(3), v(4), v(5), v(6), \
                                                v(7), v(8), v(9), v(10), v(11), v(12), v(13), v(14), v(15));         \
    (x)[k] = upper;                                                                                                  \
  }

HWY_INLINE void transpose_square(const float* from, std::size_t from_stride, float* to, std::size_t to_stride) {
  Row x[row];
  for (std::size_t k = 0; k < row; ++k) std::memcpy(&x[k], from + k * from_stride, sizeof x[k]);
  RANVIER_EXCHANGE(x, 8)
  RANVIER_EXCHANGE(x, 4)
  RANVIER_EXCHANGE(x, 2)
  RANVIER_EXCHANGE(x, 1)
  for (std::size_t k = 0; k < row; ++k) std::memcpy(to + k * to_stride, &x[k], sizeof x[k]);
}

void transpose_loop(const float* from, std::size_t rows, std::size_t columns, std::size_t from_stride, float* to,
                    std::size_t to_stride) {
  const std::size_t square_rows = rows - rows % row, square_columns = columns - columns % row;
  for (std::size_t i = 0; i < square_rows; i += row)
    for (std::size_t j = 0; j < square_columns; j += row)
      transpose_square(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = i < square_rows ? square_columns : 0; j < columns; ++j)
      to[j * to_stride + i] = from[i * from_stride + j];
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(transpose_loop);

void transpose(const float* from, std::size_t rows, std::size_t columns, std::size_t from_stride, float* to,
               std::size_t to_stride) {
  HWY_DYNAMIC_DISPATCH(transpose_loop)(from, rows, columns, from_stride, to, to_stride);
}

}  // namespace ranvier::kernel
#endif
