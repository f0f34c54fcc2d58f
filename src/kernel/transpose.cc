#include "kernel/transpose.h"

#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/transpose.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

// Of rows k and k + stride the upper lanes of the one and the lower lanes of the other change places, in each group of
// 2 * stride lanes.
template <int stride, int... lane>
HWY_INLINE void exchange(Floats& a, Floats& b, std::integer_sequence<int, lane...>) {
  constexpr int lanes = sizeof...(lane);
  const Floats upper = __builtin_shufflevector(a, b, ((lane & stride) == 0 ? lane : lanes + lane - stride)...);
  b = __builtin_shufflevector(a, b, ((lane & stride) == 0 ? lane + stride : lanes + lane)...);
  a = upper;
}
template <int stride>
HWY_INLINE void exchange(Floats* x) {
  for (std::size_t k = 0; k < register_lanes; ++k)
    if ((k & stride) == 0) exchange<stride>(x[k], x[k + stride], Lanes());
  if constexpr (stride > 1) exchange<stride / 2>(x);
}

HWY_INLINE void transpose_square(const float* from, std::size_t from_stride, float* to, std::size_t to_stride) {
  Floats x[register_lanes];
  for (std::size_t k = 0; k < register_lanes; ++k) x[k] = load_floats(from + k * from_stride);
  exchange<register_lanes / 2>(x);
  for (std::size_t k = 0; k < register_lanes; ++k) store_floats(x[k], to + k * to_stride);
}

void transpose_loop(const float* from, std::size_t rows, std::size_t columns, std::size_t from_stride, float* to,
                    std::size_t to_stride) {
  constexpr std::size_t side = register_lanes;
  const std::size_t square_rows = rows - rows % side, square_columns = columns - columns % side;
  for (std::size_t i = 0; i < square_rows; i += side)
    for (std::size_t j = 0; j < square_columns; j += side)
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
