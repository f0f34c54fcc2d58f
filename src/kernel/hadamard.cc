#include "kernel/hadamard.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/hadamard.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "base/mix.h"
#include "kernel/row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

// A block of 1024 is walked three times for its ten levels: six, two and two; signs are part of the first or last walk.
constexpr std::uint32_t sign_bit = 0x80000000U;

HWY_INLINE void sum_and_difference(Floats& a, Floats& b) {
  const Floats difference = a - b;
  a += b;
  b = difference;
}
HWY_INLINE void sum_and_difference(Row& a, Row& b) {
  for (std::size_t p = 0; p < registers; ++p) sum_and_difference(a.part[p], b.part[p]);
}

// Butterflies between lanes i and i ^ stride: the lower one becomes the sum, the upper one the difference.
template <int stride, int... lane>
HWY_INLINE Floats butterfly_within(Floats x, std::integer_sequence<int, lane...>) {
  const Words sign = {((lane & stride) != 0 ? sign_bit : 0U)...};
  return reinterpret_cast<Floats>(reinterpret_cast<Words>(x) ^ sign) +
         __builtin_shufflevector(x, x, (lane ^ stride)...);
}
template <int stride>
HWY_INLINE void butterfly(Row& x) {
  if constexpr (stride < register_lanes) {
    for (Floats& part : x.part) part = butterfly_within<stride>(part, Lanes());
  } else {
    constexpr std::size_t h = stride / register_lanes;
    for (std::size_t p = 0; p < registers; ++p)
      if ((p & h) == 0) sum_and_difference(x.part[p], x.part[p + h]);
  }
}

// The diagonal D: random signs, with the factor that makes the matrix orthonormal.
struct Diagonal {
  std::uint64_t seed;
  std::size_t begin;  // of the block, so that blocks have signs of their own
  float factor;
};

// A hash for each 64 places has the signs of four rows; of a block that is smaller than a row, the first it needs.
template <int... lane>
HWY_INLINE void scale_row(const Diagonal& diagonal, std::size_t at, Row& x, std::integer_sequence<int, lane...>) {
  const std::size_t place = diagonal.begin + at;
  const auto signs = static_cast<std::uint32_t>(mix(diagonal.seed + place / 64) >> (place % 64));
  constexpr Words bits = {(1U << lane)...};
  for (std::size_t p = 0; p < registers; ++p) {
    const Words is_negative = reinterpret_cast<Words>((bits & (signs >> (p * register_lanes))) == bits);
    x.part[p] *= reinterpret_cast<Floats>((is_negative & sign_bit) | std::bit_cast<std::uint32_t>(diagonal.factor));
  }
}
HWY_INLINE void scale_row(const Diagonal& diagonal, std::size_t at, Row& x) { scale_row(diagonal, at, x, Lanes()); }

// The four levels within rows, and of 2 or 4 rows the one or two levels between them, in one walk over the block.
template <std::size_t rows, bool scale_before, bool scale_after>
HWY_INLINE void transform_rows(const float* from, float* to, std::size_t block, const Diagonal& diagonal) {
  for (std::size_t i = 0; i < block; i += rows * row) {
    Row x[rows];
    for (std::size_t k = 0; k < rows; ++k) {
      load_row(from + i + k * row, x[k]);
      if (scale_before) scale_row(diagonal, i + k * row, x[k]);
      butterfly<1>(x[k]);
      butterfly<2>(x[k]);
      butterfly<4>(x[k]);
      butterfly<8>(x[k]);
    }
    for (std::size_t h = 1; h < rows; h *= 2)
      for (std::size_t k = 0; k < rows; ++k) {
        if ((k & h) == 0) sum_and_difference(x[k], x[k + h]);
      }
    for (std::size_t k = 0; k < rows; ++k) {
      if (scale_after) scale_row(diagonal, i + k * row, x[k]);
      store_row(x[k], to + i + k * row);
    }
  }
}

// Two levels at once, strides h and 2h, of whole rows: half of the loads and stores.
template <bool scale_after>
HWY_INLINE void two_levels(float* values, std::size_t block, std::size_t h, const Diagonal& diagonal) {
  for (std::size_t begin = 0; begin < block; begin += 4 * h)
    for (std::size_t i = begin; i < begin + h; i += row) {
      Row x[4];
      for (std::size_t k = 0; k < 4; ++k) load_row(values + i + k * h, x[k]);
      sum_and_difference(x[0], x[1]);
      sum_and_difference(x[2], x[3]);
      sum_and_difference(x[0], x[2]);
      sum_and_difference(x[1], x[3]);
      for (std::size_t k = 0; k < 4; ++k) {
        if (scale_after) scale_row(diagonal, i + k * h, x[k]);
        store_row(x[k], values + i + k * h);
      }
    }
}
template <bool scale_after>
HWY_INLINE void one_level(float* values, std::size_t block, std::size_t h, const Diagonal& diagonal) {
  for (std::size_t begin = 0; begin < block; begin += 2 * h)
    for (std::size_t i = begin; i < begin + h; i += row) {
      Row a, b;
      load_row(values + i, a);
      load_row(values + i + h, b);
      sum_and_difference(a, b);
      if (scale_after) scale_row(diagonal, i, a);
      if (scale_after) scale_row(diagonal, i + h, b);
      store_row(a, values + i);
      store_row(b, values + i + h);
    }
}

// Fewer values than a row has.
template <bool inverse>
HWY_INLINE void transform_few(const float* from, float* to, std::size_t block, const Diagonal& diagonal) {
  Row x = {};
  std::memcpy(&x, from, block * sizeof(float));
  if (!inverse) scale_row(diagonal, 0, x);
  // The levels of a smaller block do not reach beyond it.
  if (block > 1) butterfly<1>(x);
  if (block > 2) butterfly<2>(x);
  if (block > 4) butterfly<4>(x);
  if (inverse) scale_row(diagonal, 0, x);
  std::memcpy(to, &x, block * sizeof(float));
}

template <bool inverse>
HWY_INLINE void transform_block(const float* from, float* to, std::size_t block, const Diagonal& diagonal) {
  if (block < row) return transform_few<inverse>(from, to, block, diagonal);
  if (block == row) return transform_rows<1, !inverse, inverse>(from, to, block, diagonal);
  if (block == 2 * row) return transform_rows<2, !inverse, inverse>(from, to, block, diagonal);
  std::size_t h = 4 * row;
  if (block == h) return transform_rows<4, !inverse, inverse>(from, to, block, diagonal);
  transform_rows<4, !inverse, false>(from, to, block, diagonal);
  for (; 4 * h < block; h *= 4) two_levels<false>(to, block, h, diagonal);
  if (4 * h == block)
    two_levels<inverse>(to, block, h, diagonal);
  else
    one_level<inverse>(to, block, h, diagonal);
}

template <bool inverse>
HWY_INLINE void transform(const float* from, float* to, std::size_t count, std::size_t block, std::uint32_t seed) {
  const std::uint64_t mixed = mix(seed);
  for (std::size_t begin = 0; begin < count; begin += block) {
    while (block > count - begin) block /= 2;
    transform_block<inverse>(from + begin, to + begin, block,
                             {.seed = mixed, .begin = begin, .factor = 1 / std::sqrt(static_cast<float>(block))});
  }
}

void forward_loop(const float* from, float* to, std::size_t count, std::size_t block, std::uint32_t seed) {
  transform<false>(from, to, count, block, seed);
}
void inverse_loop(float* values, std::size_t count, std::size_t block, std::uint32_t seed) {
  transform<true>(values, values, count, block, seed);
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(forward_loop);
HWY_EXPORT(inverse_loop);

void hadamard(const float* from, float* to, std::size_t count, std::size_t block, std::uint32_t seed) {
  HWY_DYNAMIC_DISPATCH(forward_loop)(from, to, count, block, seed);
}
void inverse_hadamard(float* values, std::size_t count, std::size_t block, std::uint32_t seed) {
  HWY_DYNAMIC_DISPATCH(inverse_loop)(values, count, block, seed);
}

}  // namespace ranvier::kernel
#endif
