#include "kernel/hadamard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/hadamard.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/random_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

// The compiler's own vectors: 16 floats are one, two or four registers, and shuffles are written once for all targets.
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

HWY_INLINE void transform_rows(float* values, std::size_t block) {
  for (std::size_t i = 0; i < block; i += row) {
    Row x;
    std::memcpy(&x, values + i, sizeof x);
    RANVIER_BUTTERFLY(x, 1);
    RANVIER_BUTTERFLY(x, 2);
    RANVIER_BUTTERFLY(x, 4);
    RANVIER_BUTTERFLY(x, 8);
    std::memcpy(values + i, &x, sizeof x);
  }
}

// Two levels at once, strides h and 2h: half of the loads and stores.
HWY_INLINE void two_levels(float* values, std::size_t block, std::size_t h) {
  for (std::size_t begin = 0; begin < block; begin += 4 * h)
    for (std::size_t i = begin; i < begin + h; ++i) {
      const float a = values[i] + values[i + h], b = values[i] - values[i + h];
      const float c = values[i + 2 * h] + values[i + 3 * h], d = values[i + 2 * h] - values[i + 3 * h];
      values[i] = a + c;
      values[i + h] = b + d;
      values[i + 2 * h] = a - c;
      values[i + 3 * h] = b - d;
    }
}
HWY_INLINE void one_level(float* values, std::size_t block, std::size_t h) {
  for (std::size_t begin = 0; begin < block; begin += 2 * h)
    for (std::size_t i = begin; i < begin + h; ++i) {
      const float a = values[i], b = values[i + h];
      values[i] = a + b;
      values[i + h] = a - b;
    }
}

void transform_block(float* values, std::size_t block) {
  std::size_t h = 1;
  if (block >= row) {
    transform_rows(values, block);
    h = row;
  }
  for (; 4 * h <= block; h *= 4) two_levels(values, block, h);
  if (h < block) one_level(values, block, h);
}

// values <- D values * factor.
HWY_INLINE void scale_with_signs(float* values, std::size_t count, std::uint32_t seed, std::uint32_t position,
                                 float factor) {
  const auto bits = std::bit_cast<std::uint32_t>(factor);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t sign = random_bits(seed, position + static_cast<std::uint32_t>(i)) & 0x80000000U;
    values[i] *= std::bit_cast<float>(bits ^ sign);
  }
}

template <bool inverse>
HWY_INLINE void transform(float* values, std::size_t count, std::size_t block, std::uint32_t seed) {
  for (std::size_t begin = 0; begin < count;) {
    while (block > count - begin) block /= 2;
    const float factor = 1 / std::sqrt(static_cast<float>(block));
    float* const here = values + begin;
    if (!inverse) scale_with_signs(here, block, seed, static_cast<std::uint32_t>(begin), factor);
    transform_block(here, block);
    if (inverse) scale_with_signs(here, block, seed, static_cast<std::uint32_t>(begin), factor);
    begin += block;
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
