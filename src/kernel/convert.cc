// Conversions between f32 and the 16-bit floats, compiled once for each instruction set that Highway knows here.
#include <cstddef>
#include <cstdint>

#include "ranvier/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/convert.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/half-inl.h"
#include "kernel/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

struct Bf16Coding {
  template <class D32>
  static HWY_INLINE auto narrow(D32, hn::Vec<D32> value) {
    const auto rounded = hn::ShiftRight<16>(round_to_bf16(value));
    return hn::DemoteTo(hn::Rebind<std::uint16_t, D32>(), hn::BitCast(hn::RebindToSigned<D32>(), rounded));
  }
  template <class D32>
  static HWY_INLINE auto widen(D32 d, hn::Vec<hn::Rebind<std::uint16_t, D32>> half) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D32>(), half)));
  }
};

struct F16Coding {
  template <class D32>
  static HWY_INLINE auto narrow(D32 d, hn::Vec<D32> value) {
    return f32_to_f16(d, value);
  }
  template <class D32>
  static HWY_INLINE auto widen(D32 d, hn::Vec<hn::Rebind<std::uint16_t, D32>> half) {
    return f16_to_f32(d, half);
  }
};

template <class Coding>
struct Narrowing {
  const std::byte* from;
  std::byte* to;

  template <std::size_t lanes>
  HWY_INLINE std::size_t lanes_of() const {
    return hn::Lanes(hn::CappedTag<float, lanes>());
  }
  template <std::size_t lanes>
  HWY_INLINE void run(std::size_t first) const {
    const hn::CappedTag<float, lanes> d;
    store(Coding::narrow(d, load(d, from + 4 * first)), hn::Rebind<std::uint16_t, decltype(d)>(), to + 2 * first);
  }
};

template <class Coding>
struct Widening {
  const std::byte* from;
  std::byte* to;

  template <std::size_t lanes>
  HWY_INLINE std::size_t lanes_of() const {
    return hn::Lanes(hn::CappedTag<float, lanes>());
  }
  template <std::size_t lanes>
  HWY_INLINE void run(std::size_t first) const {
    const hn::CappedTag<float, lanes> d;
    store(Coding::widen(d, load(hn::Rebind<std::uint16_t, decltype(d)>(), from + 2 * first)), d, to + 4 * first);
  }
};

template <template <class> class Direction, class Coding>
HWY_INLINE void convert(const void* from, void* to, std::size_t count) {
  walk<HWY_LANES(float)>(count, Direction<Coding>{static_cast<const std::byte*>(from), static_cast<std::byte*>(to)});
}

void narrow_bf16(const void* from, void* to, std::size_t count) { convert<Narrowing, Bf16Coding>(from, to, count); }
void widen_bf16(const void* from, void* to, std::size_t count) { convert<Widening, Bf16Coding>(from, to, count); }
void narrow_f16(const void* from, void* to, std::size_t count) { convert<Narrowing, F16Coding>(from, to, count); }
void widen_f16(const void* from, void* to, std::size_t count) { convert<Widening, F16Coding>(from, to, count); }

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(narrow_bf16);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(narrow_f16);
HWY_EXPORT(widen_f16);

void to_bf16(const float* from, void* to, std::size_t count) { HWY_DYNAMIC_DISPATCH(narrow_bf16)(from, to, count); }
void from_bf16(const void* from, float* to, std::size_t count) { HWY_DYNAMIC_DISPATCH(widen_bf16)(from, to, count); }
void to_f16(const float* from, void* to, std::size_t count) { HWY_DYNAMIC_DISPATCH(narrow_f16)(from, to, count); }
void from_f16(const void* from, float* to, std::size_t count) { HWY_DYNAMIC_DISPATCH(widen_f16)(from, to, count); }

}  // namespace ranvier::kernel
#endif
