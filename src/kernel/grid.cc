#include "kernel/grid.h"

#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/grid.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/random_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

constexpr float too_small = 0x1p-118F;  // a step of which has a reciprocal

inline std::uint16_t scale_of(float reach, int limit) {
  if (!(reach >= too_small)) return 0;
  const float wanted = reach / static_cast<float>(limit);
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(wanted) + 0xFFFFU) >> 16);
}
HWY_INLINE float widened(std::uint16_t scale) { return std::bit_cast<float>(static_cast<std::uint32_t>(scale) << 16); }
HWY_INLINE std::uint16_t scale_at(const void* scales, std::size_t block) {
  std::uint16_t scale;
  std::memcpy(&scale, static_cast<const std::byte*>(scales) + 2 * block, 2);
  return scale;
}

// Adding 1.5 * 2^23 leaves a number's nearest integer (ties to even) in the last bits of the sum.
constexpr float rounder = 0x1.8p23F;
constexpr std::int32_t rounder_bits = 0x4B400000;

#if HWY_TARGET == HWY_AVX2
// Whole 32 of the nearest symbols, and how many they are. Packed with saturation and put in order once, where what GCC
// makes of the loop in block_to_grid() is masked and put in order at every step.
HWY_INLINE std::size_t nearest_symbols(const float* values, std::size_t count, float inverse, int limit,
                                       std::uint8_t* symbols) {
  const __m256 factor = _mm256_set1_ps(inverse), most = _mm256_set1_ps(static_cast<float>(limit));
  const __m256 least = _mm256_set1_ps(-static_cast<float>(limit));
  const __m256i centre = _mm256_set1_epi8(static_cast<char>(limit)), order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const auto eight = [&](std::size_t k) {
      const __m256 x = _mm256_mul_ps(_mm256_loadu_ps(values + i + 8 * k), factor);
      return _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(least, x), most));
    };
    const auto sixteen = [&](std::size_t k) { return _mm256_packs_epi32(eight(k), eight(k + 1)); };
    const __m256i packed = _mm256_packs_epi16(sixteen(0), sixteen(2));
    const __m256i ordered = _mm256_permutevar8x32_epi32(packed, order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(symbols + i), _mm256_add_epi8(ordered, centre));
  }
  return i;
}
#else
HWY_INLINE std::size_t nearest_symbols(const float*, std::size_t, float, int, std::uint8_t*) { return 0; }
#endif

HWY_INLINE void block_to_grid(const Grid& grid, const float* HWY_RESTRICT values, std::size_t count, float scale,
                              std::uint32_t seed, std::uint32_t position, std::uint8_t* HWY_RESTRICT symbols) {
  const float inverse = scale > 0 ? 1 / scale : 0;
  const auto limit = static_cast<float>(grid.limit);
  const std::int32_t centre = grid.limit - rounder_bits;
  if (grid.stochastic) {
    for (std::size_t i = 0; i < count; ++i) {
      // The floor of x + u is the nearest integer to x + u - 1/2: but for ties, which have a probability of 2^-23.
      const float x = values[i] * inverse + (random_fraction(seed, position + static_cast<std::uint32_t>(i)) - 0.5F);
      const float inside = std::min(std::max(x, -limit), limit);
      symbols[i] = static_cast<std::uint8_t>(std::bit_cast<std::int32_t>(inside + rounder) + centre);
    }
  } else {
    for (std::size_t i = nearest_symbols(values, count, inverse, grid.limit, symbols); i < count; ++i) {
      const float inside = std::min(std::max(values[i] * inverse, -limit), limit);
      symbols[i] = static_cast<std::uint8_t>(std::bit_cast<std::int32_t>(inside + rounder) + centre);
    }
  }
}

void to_grid_loop(const Grid& grid, const float* values, std::size_t count, const void* scales, std::uint32_t seed,
                  std::uint8_t* symbols) {
  for (std::size_t begin = 0, block = 0; begin < count; begin += grid.block, ++block)
    block_to_grid(grid, values + begin, std::min(grid.block, count - begin), widened(scale_at(scales, block)), seed,
                  static_cast<std::uint32_t>(begin), symbols + begin);
}

void to_largest_grid_loop(const Grid& grid, const float* values, std::size_t count, void* scales, std::uint32_t seed,
                          std::uint8_t* symbols) {
  for (std::size_t begin = 0, block = 0; begin < count; begin += grid.block, ++block) {
    const std::size_t size = std::min(grid.block, count - begin);
    std::uint32_t largest = 0;
    for (std::size_t i = 0; i < size; ++i)
      largest = std::max(largest, std::bit_cast<std::uint32_t>(values[begin + i]) & 0x7FFFFFFFU);
    const std::uint16_t scale = scale_of(std::bit_cast<float>(largest), grid.limit);
    std::memcpy(static_cast<std::byte*>(scales) + 2 * block, &scale, 2);
    block_to_grid(grid, values + begin, size, widened(scale), seed, static_cast<std::uint32_t>(begin), symbols + begin);
  }
}

void from_grid_loop(const Grid& grid, const std::uint8_t* HWY_RESTRICT symbols, std::size_t count, const void* scales,
                    float* HWY_RESTRICT values) {
  const auto limit = static_cast<std::int32_t>(grid.limit);
  for (std::size_t begin = 0, block = 0; begin < count; begin += grid.block, ++block) {
    const float scale = widened(scale_at(scales, block));
    const std::size_t end = std::min(begin + grid.block, count);
    for (std::size_t i = begin; i < end; ++i)
      values[i] = static_cast<float>(static_cast<std::int32_t>(symbols[i]) - limit) * scale;
  }
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(to_grid_loop);
HWY_EXPORT(to_largest_grid_loop);
HWY_EXPORT(from_grid_loop);

std::uint16_t grid_scale(float reach, int limit) { return HWY_STATIC_DISPATCH(scale_of)(reach, limit); }
void to_grid(const Grid& grid, const float* values, std::size_t count, const void* scales, std::uint32_t seed,
             std::uint8_t* symbols) {
  HWY_DYNAMIC_DISPATCH(to_grid_loop)(grid, values, count, scales, seed, symbols);
}
void to_largest_grid(const Grid& grid, const float* values, std::size_t count, void* scales, std::uint32_t seed,
                     std::uint8_t* symbols) {
  HWY_DYNAMIC_DISPATCH(to_largest_grid_loop)(grid, values, count, scales, seed, symbols);
}
void from_grid(const Grid& grid, const std::uint8_t* symbols, std::size_t count, const void* scales, float* values) {
  HWY_DYNAMIC_DISPATCH(from_grid_loop)(grid, symbols, count, scales, values);
}

}  // namespace ranvier::kernel
#endif
