// Byte planes of floats, compiled once for each instruction set that Highway knows here.
#include "kernel/planes.h"

#include "ranvier/types.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/planes.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

template <class Lane, std::size_t lanes>
using Tag = hn::CappedTag<Lane, lanes>;

template <class D>
HWY_INLINE hn::Vec<D> turned_left(hn::Vec<D> v) {
  return hn::Or(hn::ShiftLeft<1>(v), hn::ShiftRight<8 * sizeof(hn::TFromD<D>) - 1>(v));
}

template <class D>
HWY_INLINE hn::Vec<D> turned_right(hn::Vec<D> v) {
  return hn::Or(hn::ShiftRight<1>(v), hn::ShiftLeft<8 * sizeof(hn::TFromD<D>) - 1>(v));
}

// Each lane's byte `shift` bits up, in a plane.
template <int shift, class D>
HWY_INLINE void put_byte(D, hn::Vec<D> v, std::uint8_t* plane) {
  const hn::Rebind<std::uint8_t, D> d8;
  store(hn::TruncateTo(d8, hn::ShiftRight<shift>(v)), d8, reinterpret_cast<std::byte*>(plane));
}

template <int shift, class D>
HWY_INLINE hn::Vec<D> take_byte(D d, const std::uint8_t* plane) {
  const hn::Rebind<std::uint8_t, D> d8;
  return hn::ShiftLeft<shift>(hn::PromoteTo(d, load(d8, reinterpret_cast<const std::byte*>(plane))));
}

template <class Lane>
struct Split {
  const std::byte* values;
  std::uint8_t* const* planes;

  template <std::size_t lanes>
  HWY_INLINE std::size_t lanes_of() const {
    return hn::Lanes(Tag<Lane, lanes>());
  }
  template <std::size_t lanes>
  HWY_INLINE void run(std::size_t first) const {
    const Tag<Lane, lanes> d;
    const auto v = turned_left<Tag<Lane, lanes>>(load(d, values + first * sizeof(Lane)));
    constexpr int top = 8 * sizeof(Lane) - 8;
    put_byte<top>(d, v, planes[0] + first);
    put_byte<top - 8>(d, v, planes[1] + first);
    if constexpr (sizeof(Lane) == 4) {
      put_byte<8>(d, v, planes[2] + first);
      put_byte<0>(d, v, planes[3] + first);
    }
  }
};

template <class Lane>
struct Join {
  const std::uint8_t* const* planes;
  std::byte* values;

  template <std::size_t lanes>
  HWY_INLINE std::size_t lanes_of() const {
    return hn::Lanes(Tag<Lane, lanes>());
  }
  template <std::size_t lanes>
  HWY_INLINE void run(std::size_t first) const {
    const Tag<Lane, lanes> d;
    constexpr int top = 8 * sizeof(Lane) - 8;
    auto v = hn::Or(take_byte<top>(d, planes[0] + first), take_byte<top - 8>(d, planes[1] + first));
    if constexpr (sizeof(Lane) == 4)
      v = hn::Or(v, hn::Or(take_byte<8>(d, planes[2] + first), take_byte<0>(d, planes[3] + first)));
    store(turned_right<Tag<Lane, lanes>>(v), d, values + first * sizeof(Lane));
  }
};

void split_32(const std::byte* values, std::size_t count, std::uint8_t* const* planes) {
  walk<HWY_LANES(std::uint32_t)>(count, Split<std::uint32_t>{values, planes});
}
void join_32(const std::uint8_t* const* planes, std::size_t count, std::byte* values) {
  walk<HWY_LANES(std::uint32_t)>(count, Join<std::uint32_t>{planes, values});
}
void split_16(const std::byte* values, std::size_t count, std::uint8_t* const* planes) {
  walk<HWY_LANES(std::uint16_t)>(count, Split<std::uint16_t>{values, planes});
}
void join_16(const std::uint8_t* const* planes, std::size_t count, std::byte* values) {
  walk<HWY_LANES(std::uint16_t)>(count, Join<std::uint16_t>{planes, values});
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(split_32);
HWY_EXPORT(join_32);
HWY_EXPORT(split_16);
HWY_EXPORT(join_16);

void split_planes_32(const std::byte* values, std::size_t count, std::uint8_t* const (&planes)[4]) {
  HWY_DYNAMIC_DISPATCH(split_32)(values, count, planes);
}
void join_planes_32(const std::uint8_t* const (&planes)[4], std::size_t count, std::byte* values) {
  HWY_DYNAMIC_DISPATCH(join_32)(planes, count, values);
}
void split_planes_16(const std::byte* values, std::size_t count, std::uint8_t* const (&planes)[2]) {
  HWY_DYNAMIC_DISPATCH(split_16)(values, count, planes);
}
void join_planes_16(const std::uint8_t* const (&planes)[2], std::size_t count, std::byte* values) {
  HWY_DYNAMIC_DISPATCH(join_16)(planes, count, values);
}

}  // namespace ranvier::kernel
#endif
