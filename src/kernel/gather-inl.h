// Gathers for x86 that do not wait. The instruction merges into its target, and with a mask that is known to be full
// GCC takes any register as that, so independent gathers ran one after the other, at half the speed: here the target is
// zeroed, and the mask is hidden from the compiler. Included once per instruction set.
#include "hwy/highway.h"

#if defined(RANVIER_KERNEL_GATHER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RANVIER_KERNEL_GATHER_INL_H
#undef RANVIER_KERNEL_GATHER_INL_H
#else
#define RANVIER_KERNEL_GATHER_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

namespace hn = hwy::HWY_NAMESPACE;

using GatherTag = hn::FixedTag<std::uint32_t, HWY_LANES(std::uint32_t)>;
using Gathered = hn::Vec<GatherTag>;

// The 32-bit words that lie `index` times `scale` bytes behind `base`.
template <int scale>
HWY_INLINE Gathered gather(const void* base, Gathered index) {
#if HWY_TARGET <= HWY_AVX3
  __mmask16 all = 0xFFFF;
  __asm__("" : "+Yk"(all));
  return Gathered{_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), all, index.raw, base, scale)};
#else
  __m256i all = _mm256_set1_epi32(-1);
  __asm__("" : "+x"(all));
  const auto* words = static_cast<const int*>(base);
  return Gathered{_mm256_mask_i32gather_epi32(_mm256_setzero_si256(), words, index.raw, all, scale)};
#endif
}

#endif

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
