// Chosen lanes, side by side at the front. Highway's own for eight lanes has its table inside the function, which GCC
// copies to the stack at every call: 2 KiB, at a third of the speed. Included once per instruction set.
#include <array>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

#ifndef RANVIER_COMPRESSIONS
#define RANVIER_COMPRESSIONS
namespace ranvier::kernel {

// For each set of 8 lanes: the lanes in the set, in order.
constexpr auto make_compressions() {
  std::array<std::array<std::uint8_t, 8>, 256> compressions{};
  for (std::size_t set = 0; set < compressions.size(); ++set) {
    std::size_t place = 0;
    for (std::uint8_t lane = 0; lane < 8; ++lane)
      if (set >> lane & 1) compressions[set][place++] = lane;
  }
  return compressions;
}
inline constexpr auto compressions = make_compressions();

}  // namespace ranvier::kernel
#endif

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
  return hn::TableLookupLanes(lanes, hn::IndicesFromVec(d, hn::PromoteTo(d, hn::LoadU(d8, compressions[set].data()))));
#else
  (void)d;
  return hn::Compress(lanes, chosen);
#endif
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
