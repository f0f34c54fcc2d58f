// Vectors to and from memory of any alignment and any type, and the walk over it. Included once per instruction set.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

// The guard that Highway asks of headers which are compiled once per target.
#if defined(RANVIER_KERNEL_MEMORY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RANVIER_KERNEL_MEMORY_INL_H
#undef RANVIER_KERNEL_MEMORY_INL_H
#else
#define RANVIER_KERNEL_MEMORY_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Memory is read as bytes: a view of received bytes may start anywhere, and a misaligned float* is undefined behaviour
// even where the load instruction would not mind. A single lane goes through a register of its own type, because
// HWY_SCALAR cannot see it as bytes.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    hn::TFromD<D> lane;
    std::memcpy(&lane, from, sizeof lane);
    return hn::Set(d, lane);
  } else {
    const hn::Repartition<std::uint8_t, D> bytes;
    return hn::BitCast(d, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from)));
  }
}

template <class D>
HWY_INLINE void store(hn::Vec<D> vector, D, std::byte* to) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    const hn::TFromD<D> lane = hn::GetLane(vector);
    std::memcpy(to, &lane, sizeof lane);
  } else {
    const hn::Repartition<std::uint8_t, D> bytes;
    hn::StoreU(hn::BitCast(bytes, vector), bytes, reinterpret_cast<std::uint8_t*>(to));
  }
}

// Calls body.template operator()<lanes>(first) for vectors of at most `lanes` lanes that cover [first, count) in order:
// fewer than one vector of `lanes` are left, and each halving takes one bit of what is left. So nothing outside is
// touched, a single element costs a handful of predicted branches, and plain (unmasked) stores forward to the loads
// that follow a small all_reduce.
template <std::size_t lanes, class Body>
HWY_INLINE void walk_rest(std::size_t first, std::size_t count, const Body& body) {
  const std::size_t taken = body.template lanes_of<lanes>();
  if ((count - first) & taken) {
    body.template run<lanes>(first);
    first += taken;
  }
  if constexpr (lanes > 1) walk_rest<lanes / 2>(first, count, body);
}

template <std::size_t lanes, class Body>
HWY_INLINE void walk(std::size_t count, const Body& body) {
  const std::size_t taken = body.template lanes_of<lanes>();
  std::size_t first = 0;
  for (; first + 4 * taken <= count; first += 4 * taken)
    for (std::size_t part = 0; part < 4; ++part) body.template run<lanes>(first + part * taken);
  for (; first + taken <= count; first += taken) body.template run<lanes>(first);
  if constexpr (lanes > 1) walk_rest<lanes / 2>(first, count, body);
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
