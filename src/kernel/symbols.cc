#include "kernel/symbols.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/symbols.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/sets_of_eight.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

Extremes extremes_loop(const std::uint8_t* symbols, std::size_t count) {
  std::uint8_t least = 255, most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    least = std::min(least, symbols[i]);
    most = std::max(most, symbols[i]);
  }
  return {least, most};
}

void fold_loop(unsigned zero, const std::uint8_t* symbols, std::size_t count, std::uint8_t* out) {
  const auto middle = static_cast<std::uint8_t>(zero), last = static_cast<std::uint8_t>(2 * zero);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t symbol = symbols[i];
    const auto up = static_cast<std::uint8_t>(2 * static_cast<std::uint8_t>(symbol - middle));
    const auto down = static_cast<std::uint8_t>(2 * static_cast<std::uint8_t>(middle - symbol) - 1);
    const std::uint8_t folded = symbol < middle ? down : up;
    out[i] = symbol > last ? symbol : folded;
  }
}

void unfold_loop(unsigned zero, const std::uint8_t* folded, std::size_t count, std::uint8_t* out) {
  const auto middle = static_cast<std::uint8_t>(zero), last = static_cast<std::uint8_t>(2 * zero);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t number = folded[i];
    const auto half = static_cast<std::uint8_t>(number >> 1);
    const auto up = static_cast<std::uint8_t>(middle + half), down = static_cast<std::uint8_t>(middle - half - 1);
    const std::uint8_t symbol = (number & 1) != 0 ? down : up;
    out[i] = number > last ? number : symbol;
  }
}

std::size_t count_small_loop(const std::uint8_t* symbols, std::size_t count, std::uint32_t* counts) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d), whole = count / lanes * lanes;
  std::size_t found = 0;
  for (std::uint8_t first = 0; first < small_symbols && found < count; first = static_cast<std::uint8_t>(first + 4)) {
    const auto symbol_0 = hn::Set(d, first), symbol_1 = hn::Set(d, static_cast<std::uint8_t>(first + 1));
    const auto symbol_2 = hn::Set(d, static_cast<std::uint8_t>(first + 2));
    const auto symbol_3 = hn::Set(d, static_cast<std::uint8_t>(first + 3));
    std::size_t count_0 = 0, count_1 = 0, count_2 = 0, count_3 = 0;
    for (std::size_t i = 0; i < whole; i += lanes) {
      const auto some = hn::LoadU(d, symbols + i);
      count_0 += hn::CountTrue(d, hn::Eq(some, symbol_0));
      count_1 += hn::CountTrue(d, hn::Eq(some, symbol_1));
      count_2 += hn::CountTrue(d, hn::Eq(some, symbol_2));
      count_3 += hn::CountTrue(d, hn::Eq(some, symbol_3));
    }
    std::size_t of[4] = {count_0, count_1, count_2, count_3};
    for (std::size_t i = whole; i < count; ++i)
      if (symbols[i] >= first && symbols[i] < first + 4) ++of[symbols[i] - first];
    for (std::size_t k = 0; k < 4; ++k) {
      counts[first + k] = static_cast<std::uint32_t>(of[k]);
      found += of[k];
    }
  }
  return found;
}

void mark_loop(const std::uint8_t* symbols, std::size_t groups, std::uint8_t frequent, std::uint8_t* bits) {
  constexpr std::uint64_t all_bytes = 0x0101010101010101;  // times a byte: eight of them
  constexpr std::uint64_t low_bits = 0x7F * all_bytes, gather = 0x0102040810204080;
  const std::uint64_t eight_times = all_bytes * frequent;
  for (std::size_t group = 0; group < groups; ++group) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, symbols + 8 * group, 8);
    const std::uint64_t different = eight ^ eight_times;
    const std::uint64_t is_not = (((different & low_bits) + low_bits) | different) >> 7 & all_bytes;
    bits[group] = static_cast<std::uint8_t>(is_not * gather >> 56);
  }
}

std::size_t count_loop(const std::uint8_t* bits, std::size_t bytes) {
  std::size_t count = 0, at = 0;
  for (; at + 8 <= bytes; at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, bits + at, 8);
    count += static_cast<std::size_t>(std::popcount(eight));
  }
  for (; at < bytes; ++at) count += static_cast<std::size_t>(std::popcount(bits[at]));
  return count;
}

#if HWY_TARGET == HWY_SCALAR

std::uint8_t* take_loop(const std::uint8_t* symbols, const std::uint8_t* bits, std::size_t groups, std::uint8_t* out) {
  for (std::size_t group = 0; group < groups; ++group)
    for (unsigned left = bits[group]; left != 0; left &= left - 1)
      *out++ = symbols[8 * group + static_cast<std::size_t>(std::countr_zero(left))];
  return out;
}

std::size_t put_loop(const std::uint8_t* bits, std::size_t groups, std::uint8_t frequent, const std::uint8_t*& marked,
                     const std::uint8_t* end, std::uint8_t* out) {
  std::size_t group = 0;
  for (; group < groups && end - marked >= 8; ++group) {
    std::array<std::uint8_t, 8> coming;  // before they are written over
    std::memcpy(coming.data(), marked, coming.size());
    std::memset(out + 8 * group, frequent, 8);
    std::size_t taken = 0;
    for (unsigned left = bits[group]; left != 0; left &= left - 1)
      out[8 * group + static_cast<std::size_t>(std::countr_zero(left))] = coming[taken++];
    marked += taken;
  }
  return group;
}

#else

// How many are marked is too random to be predicted: eight bytes go each time, and the next ones over what is too much.
using Eight = hn::CappedTag<std::uint8_t, 8>;

std::uint8_t* take_loop(const std::uint8_t* symbols, const std::uint8_t* bits, std::size_t groups, std::uint8_t* out) {
  const Eight d;
  for (std::size_t group = 0; group < groups; ++group) {
    const auto places = hn::LoadU(d, members_of[bits[group]].data());
    hn::StoreU(hn::TableLookupBytes(hn::LoadU(d, symbols + 8 * group), places), d, out);
    out += std::popcount(bits[group]);
  }
  return out;
}

std::size_t put_loop(const std::uint8_t* bits, std::size_t groups, std::uint8_t frequent, const std::uint8_t*& marked,
                     const std::uint8_t* end, std::uint8_t* out) {
  const Eight d;
  const auto filler = hn::Set(d, frequent), no_rank = hn::Set(d, none);
  const std::uint8_t* next = marked;
  std::size_t group = 0;
  for (; group < groups && end - next >= 8; ++group) {
    const auto ranks = hn::LoadU(d, ranks_or_none[bits[group]].data());
    const auto others = hn::TableLookupBytesOr0(hn::LoadU(d, next), ranks);
    hn::StoreU(hn::IfThenElse(hn::Eq(ranks, no_rank), filler, others), d, out + 8 * group);
    next += std::popcount(bits[group]);
  }
  marked = next;
  return group;
}

#endif

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(count_small_loop);
HWY_EXPORT(extremes_loop);
HWY_EXPORT(fold_loop);
HWY_EXPORT(unfold_loop);
HWY_EXPORT(mark_loop);
HWY_EXPORT(count_loop);
HWY_EXPORT(take_loop);
HWY_EXPORT(put_loop);

std::size_t count_small(const std::uint8_t* symbols, std::size_t count,
                        std::span<std::uint32_t, small_symbols> counts) {
  std::ranges::fill(counts, 0U);
  return HWY_DYNAMIC_DISPATCH(count_small_loop)(symbols, count, counts.data());
}
Extremes extremes_of(const std::uint8_t* symbols, std::size_t count) {
  return HWY_DYNAMIC_DISPATCH(extremes_loop)(symbols, count);
}
void fold_symbols(unsigned zero, const std::uint8_t* symbols, std::size_t count, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(fold_loop)(zero, symbols, count, out);
}
void unfold_symbols(unsigned zero, const std::uint8_t* folded, std::size_t count, std::uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(unfold_loop)(zero, folded, count, out);
}
void mark_others(const std::uint8_t* symbols, std::size_t groups, std::uint8_t frequent, std::uint8_t* bits) {
  HWY_DYNAMIC_DISPATCH(mark_loop)(symbols, groups, frequent, bits);
}
std::size_t count_bits(const std::uint8_t* bits, std::size_t bytes) {
  return HWY_DYNAMIC_DISPATCH(count_loop)(bits, bytes);
}
std::uint8_t* take_marked(const std::uint8_t* symbols, const std::uint8_t* bits, std::size_t groups,
                          std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(take_loop)(symbols, bits, groups, out);
}
std::size_t put_marked(const std::uint8_t* bits, std::size_t groups, std::uint8_t frequent, const std::uint8_t*& marked,
                       const std::uint8_t* end, std::uint8_t* out) {
  return HWY_DYNAMIC_DISPATCH(put_loop)(bits, groups, frequent, marked, end, out);
}

}  // namespace ranvier::kernel
#endif
