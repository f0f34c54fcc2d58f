// Random bits by position: the bits of element i depend on a seed and on i alone, so that a loop may take elements in
// any order and number, and every instruction set gives the same ones. Included once per instruction set.
//
// The mixing is the 32-bit integer hash "lowbias32" of Wellons' search (nullprogram.com, 2018): two multiplications,
// each input bit changes each output bit with a probability of 1/2 to within 0.2 %.
#include <cstdint>

#include "hwy/highway.h"

#if defined(RANVIER_KERNEL_RANDOM_BITS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RANVIER_KERNEL_RANDOM_BITS_INL_H
#undef RANVIER_KERNEL_RANDOM_BITS_INL_H
#else
#define RANVIER_KERNEL_RANDOM_BITS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

HWY_INLINE std::uint32_t random_bits(std::uint32_t seed, std::uint32_t position) {
  std::uint32_t x = position + seed;
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}

// Uniform in [0, 1), in steps of 2^-23.
HWY_INLINE float random_fraction(std::uint32_t seed, std::uint32_t position) {
  return static_cast<float>(static_cast<std::int32_t>(random_bits(seed, position) >> 9)) * 0x1p-23F;
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
