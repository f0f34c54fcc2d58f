// Sixteen floats in vectors of the compiler's own, as many as the instruction set's registers ask for: shuffles are
// then written once for all of them. One vector of sixteen would be simpler and four times as slow where registers are
// narrower: GCC takes what meets a shuffle or a comparison apart into single lanes. Included once per instruction set.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "hwy/highway.h"

#if defined(RANVIER_KERNEL_ROW_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RANVIER_KERNEL_ROW_INL_H
#undef RANVIER_KERNEL_ROW_INL_H
#else
#define RANVIER_KERNEL_ROW_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

constexpr std::size_t row = 16;
constexpr std::size_t register_lanes = std::clamp<std::size_t>(HWY_MAX_BYTES / sizeof(float), 4, row);
constexpr std::size_t registers = row / register_lanes;
using Floats = float __attribute__((vector_size(register_lanes * sizeof(float))));
// Before the "=", or clang takes no notice of the alignment.
using FloatsAnywhere __attribute__((vector_size(register_lanes * sizeof(float)), aligned(4), may_alias)) = float;
static_assert(alignof(FloatsAnywhere) == 4);
using Words = std::uint32_t __attribute__((vector_size(register_lanes * sizeof(float))));
using Lanes = std::make_integer_sequence<int, register_lanes>;

// Not by memcpy(), which GCC does in halves of a register and through memory.
HWY_INLINE Floats load_floats(const float* from) { return *reinterpret_cast<const FloatsAnywhere*>(from); }
HWY_INLINE void store_floats(Floats x, float* to) { *reinterpret_cast<FloatsAnywhere*>(to) = x; }

struct Row {
  Floats part[registers];
};
HWY_INLINE void load_row(const float* from, Row& x) {
  for (std::size_t p = 0; p < registers; ++p) x.part[p] = load_floats(from + p * register_lanes);
}
HWY_INLINE void store_row(const Row& x, float* to) {
  for (std::size_t p = 0; p < registers; ++p) store_floats(x.part[p], to + p * register_lanes);
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
