#include "kernel/hadamard.h"

#include <bit>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/hadamard.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

// The compiler's own vectors: 16 floats are one, two or four registers, and shuffles are written once for all targets.
// A block of 1024 is walked three times for its ten levels: six, two and two; signs are part of the first or last walk.
constexpr std::size_t row = 16;
using Row = float __attribute__((vector_size(row * sizeof(float))));

// Butterflies between lanes i and i ^ stride: the lower one becomes the sum, the upper one the difference.
#define RANVIER_BUTTERFLY(x, stride)                                                                                   \
  do {                                                                                                                 \
    constexpr auto s = [](int lane) { return lane ^ (stride); };                                                       \
    constexpr auto f = [](int lane) { return (lane & (stride)) != 0 ? -1.0F : 1.0F; };                                 \
    const Row other = __builtin_shufflevector(x, x, s(0), s(1), s(2), s(3), s(4), s(5), s(6), s(7), s(8), s(9), s(10), \
                                              s(11), s(12), s(13), s(14), s(15));                                      \
    const Row sign = {f(0), f(1), f(2),  f(3),  f(4),  f(5),  f(6),  f(7),                                             \
                      f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)};                                           \
    (x) = (x)*sign + other;                                                                                            \
  } while (false)

HWY_INLINE void load_row(const float* from, Row& x) { std::memcpy(&x, from, sizeof x); }
HWY_INLINE void store_row(const Row& x, float* to) { std::memcpy(to, &x, sizeof x); }

// The diagonal D: random signs, with the factor that makes the matrix orthonormal.
struct Diagonal {
  std::uint32_t seed;
  std::uint32_t begin;  // of the block, so that blocks have signs of their own
  float factor;
};

// random_bits() of 16 places at once.
HWY_INLINE void scale_row(const Diagonal& diagonal, std::size_t at, Row& x) {
  using Words = std::uint32_t __attribute__((vector_size(row * sizeof(float))));
  Words bits = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  bits += diagonal.begin + static_cast<std::uint32_t>(at) + diagonal.seed;
  bits ^= bits >> 16;
  bits *= 0x7feb352dU;
  bits ^= bits >> 15;
  bits *= 0x846ca68bU;
  bits ^= bits >> 16;
  bits = (bits & 0x80000000U) | std::bit_cast<std::uint32_t>(diagonal.factor);
  Row signs;  // copied: clang lets no function return a vector that this file's first target has no register for
  std::memcpy(&signs, &bits, sizeof signs);
  x *= signs;
}

// The four levels within rows, and of 2 or 4 rows the one or two levels between them, in one walk over the block.
template <std::size_t rows, bool scale_before, bool scale_after>
HWY_INLINE void transform_rows(float* values, std::size_t block, const Diagonal& diagonal) {
  for (std::size_t i = 0; i < block; i += rows * row) {
    Row x[rows];
    for (std::size_t k = 0; k < rows; ++k) {
      load_row(values + i + k * row, x[k]);
      if (scale_before) scale_row(diagonal, i + k * row, x[k]);
      RANVIER_BUTTERFLY(x[k], 1);
      RANVIER_BUTTERFLY(x[k], 2);
      RANVIER_BUTTERFLY(x[k], 4);
      RANVIER_BUTTERFLY(x[k], 8);
    }
    for (std::size_t h = 1; h < rows; h *= 2)
      for (std::size_t k = 0; k < rows; ++k) {
        if ((k & h) != 0) continue;
        const Row sum = x[k] + x[k + h], difference = x[k] - x[k + h];
        x[k] = sum;
        x[k + h] = difference;
      }
    for (std::size_t k = 0; k < rows; ++k) {
      if (scale_after) scale_row(diagonal, i + k * row, x[k]);
      store_row(x[k], values + i + k * row);
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
      const Row a = x[0] + x[1], b = x[0] - x[1], c = x[2] + x[3], d = x[2] - x[3];
      x[0] = a + c;
      x[1] = b + d;
      x[2] = a - c;
      x[3] = b - d;
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
      Row sum = a + b, difference = a - b;
      if (scale_after) scale_row(diagonal, i, sum);
      if (scale_after) scale_row(diagonal, i + h, difference);
      store_row(sum, values + i);
      store_row(difference, values + i + h);
    }
}

// Fewer values than a row has.
template <bool inverse>
HWY_INLINE void transform_few(float* values, std::size_t block, const Diagonal& diagonal) {
  Row x = {};
  std::memcpy(&x, values, block * sizeof(float));
  if (!inverse) scale_row(diagonal, 0, x);
  // The levels of a smaller block do not reach beyond it.
  if (block > 1) RANVIER_BUTTERFLY(x, 1);
  if (block > 2) RANVIER_BUTTERFLY(x, 2);
  if (block > 4) RANVIER_BUTTERFLY(x, 4);
  if (inverse) scale_row(diagonal, 0, x);
  std::memcpy(values, &x, block * sizeof(float));
}

template <bool inverse>
HWY_INLINE void transform_block(float* values, std::size_t block, const Diagonal& diagonal) {
  if (block < row) return transform_few<inverse>(values, block, diagonal);
  if (block == row) return transform_rows<1, !inverse, inverse>(values, block, diagonal);
  if (block == 2 * row) return transform_rows<2, !inverse, inverse>(values, block, diagonal);
  std::size_t h = 4 * row;
  if (block == h) return transform_rows<4, !inverse, inverse>(values, block, diagonal);
  transform_rows<4, !inverse, false>(values, block, diagonal);
  for (; 4 * h < block; h *= 4) two_levels<false>(values, block, h, diagonal);
  if (4 * h == block)
    two_levels<inverse>(values, block, h, diagonal);
  else
    one_level<inverse>(values, block, h, diagonal);
}

template <bool inverse>
HWY_INLINE void transform(float* values, std::size_t count, std::size_t block, std::uint32_t seed) {
  for (std::size_t begin = 0; begin < count; begin += block) {
    while (block > count - begin) block /= 2;
    transform_block<inverse>(
        values + begin, block,
        {.seed = seed, .begin = static_cast<std::uint32_t>(begin), .factor = 1 / std::sqrt(static_cast<float>(block))});
  }
}

void forward_loop(float* values, std::size_t count, std::size_t block, std::uint32_t seed) {
  transform<false>(values, count, block, seed);
}
void inverse_loop(float* values, std::size_t count, std::size_t block, std::uint32_t seed) {
  transform<true>(values, count, block, seed);
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(forward_loop);
HWY_EXPORT(inverse_loop);

void hadamard(float* values, std::size_t count, std::size_t block, std::uint32_t seed) {
  HWY_DYNAMIC_DISPATCH(forward_loop)(values, count, block, seed);
}
void inverse_hadamard(float* values, std::size_t count, std::size_t block, std::uint32_t seed) {
  HWY_DYNAMIC_DISPATCH(inverse_loop)(values, count, block, seed);
}

}  // namespace ranvier::kernel
#endif
