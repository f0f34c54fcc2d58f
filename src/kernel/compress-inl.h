// Chosen lanes, side by side at the front. Highway's own for eight lanes has its table inside the function, which GCC
// copies to the stack at every call: 2 KiB, at a third of the speed. Included once per instruction set.
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernel/sets_of_eight.h"

#if defined(RANVIER_KERNEL_COMPRESS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RANVIER_KERNEL_COMPRESS_INL_H
#undef RANVIER_KERNEL_COMPRESS_INL_H
#else
#define RANVIER_KERNEL_COMPRESS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Of whole vectors of 32-bit lanes. What stands behind the chosen ones is any of the others.
template <class D>
HWY_INLINE hn::Vec<D> compress(D d, hn::Vec<D> lanes, hn::Mask<D> chosen) {
#if HWY_TARGET == HWY_AVX2
  const hn::Rebind<std::uint8_t, D> d8;
  const auto set = static_cast<std::size_t>(_mm256_movemask_ps(_mm256_castsi256_ps(chosen.raw)));
  return hn::TableLookupLanes(lanes, hn::IndicesFromVec(d, hn::PromoteTo(d, hn::LoadU(d8, members_of[set].data()))));
#else
  (void)d;
  return hn::Compress(lanes, chosen);
#endif
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
