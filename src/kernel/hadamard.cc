#include "kernel/hadamard.h"

#include <bit>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/hadamard.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

#include "base/mix.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

// The compiler's own vectors: 16 floats are one, two or four registers, and shuffles are written once for all targets.
// A block of 1024 is walked three times for its ten levels: six, two and two; signs are part of the first or last walk.
constexpr std::size_t row = 16;
using Row = float __attribute__((vector_size(row * sizeof(float))));
using Words = std::uint32_t __attribute__((vector_size(row * sizeof(float))));
constexpr std::uint32_t sign_bit = 0x80000000U;

// Butterflies between lanes i and i ^ stride: the lower one becomes the sum, the upper one the difference.
#define RANVIER_BUTTERFLY(x, stride)                                                                                   \
  do {                                                                                                                 \
    constexpr auto s = [](int lane) { return lane ^ (stride); };                                                       \
    constexpr auto f = [](int lane) { return (lane & (stride)) != 0 ? sign_bit : 0U; };                                \
    const Row other = __builtin_shufflevector(x, x, s(0), s(1), s(2), s(3), s(4), s(5), s(6), s(7), s(8), s(9), s(10), \
                                              s(11), s(12), s(13), s(14), s(15));                                      \
    const Words sign = {f(0), f(1), f(2),  f(3),  f(4),  f(5),  f(6),  f(7),                                           \
                        f(8), f(9), f(10), f(11), f(12), f(13), f(14), f(15)};                                         \
    (x) = reinterpret_cast<Row>(reinterpret_cast<Words>(x) ^ sign) + other;                                            \
  } while (false)

HWY_INLINE void load_row(const float* from, Row& x) { std::memcpy(&x, from, sizeof x); }
HWY_INLINE void store_row(const Row& x, float* to) { std::memcpy(to, &x, sizeof x); }

// The diagonal D: random signs, with the factor that makes the matrix orthonormal.
struct Diagonal {
  std::uint64_t seed;
  std::size_t begin;  // of the block, so that blocks have signs of their own
  float factor;
};

// A hash for each 64 places has the signs of four rows; of a block that is smaller than a row, the first it needs.
HWY_INLINE void scale_row(const Diagonal& diagonal, std::size_t at, Row& x) {
  const std::size_t place = diagonal.begin + at;
  const auto signs = static_cast<std::uint32_t>(mix(diagonal.seed + place / 64) >> (place % 64));
  constexpr Words lanes = {1U << 0, 1U << 1, 1U << 2,  1U << 3,  1U << 4,  1U << 5,  1U << 6,  1U << 7,
                           1U << 8, 1U << 9, 1U << 10, 1U << 11, 1U << 12, 1U << 13, 1U << 14, 1U << 15};
  const Words is_negative = reinterpret_cast<Words>((lanes & signs) == lanes);
  x *= reinterpret_cast<Row>((is_negative & sign_bit) | std::bit_cast<std::uint32_t>(diagonal.factor));
}

// The four levels within rows, and of 2 or 4 rows the one or two levels between them, in one walk over the block.
template <std::size_t rows, bool scale_before, bool scale_after>
HWY_INLINE void transform_rows(const float* from, float* to, std::size_t block, const Diagonal& diagonal) {
  for (std::size_t i = 0; i < block; i += rows * row) {
    Row x[rows];
    for (std::size_t k = 0; k < rows; ++k) {
      load_row(from + i + k * row, x[k]);
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
HWY_INLINE void transform_few(const float* from, float* to, std::size_t block, const Diagonal& diagonal) {
  Row x = {};
  std::memcpy(&x, from, block * sizeof(float));
  if (!inverse) scale_row(diagonal, 0, x);
  // The levels of a smaller block do not reach beyond it.
  if (block > 1) RANVIER_BUTTERFLY(x, 1);
  if (block > 2) RANVIER_BUTTERFLY(x, 2);
  if (block > 4) RANVIER_BUTTERFLY(x, 4);
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
