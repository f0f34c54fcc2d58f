// rANS decoding in vectors: each lane is a state of its own, a gather looks up what its slot means, and lanes that fell
// below the floor take the next words of one common stream, in the order of the lanes (Giesen, "Interleaved entropy
// coders", arXiv:1402.3392). Words are taken from the end: the encoder, which must run backwards through the symbols,
// has then written them forwards. Compiled for each instruction set that can gather; the others leave all to the
// caller.
#include "kernel/rans_decode.h"

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/rans_decode.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/memory-inl.h"

#ifndef RANVIER_EXPANSIONS
#define RANVIER_EXPANSIONS
namespace ranvier::kernel {

// For each set of 8 lanes: which word goes to which lane when words are dealt to the lanes in the set, in order.
constexpr auto make_expansions() {
  std::array<std::array<std::uint8_t, 8>, 256> expansions{};
  for (std::size_t set = 0; set < expansions.size(); ++set) {
    std::uint8_t word = 0;
    for (std::size_t lane = 0; lane < 8; ++lane)
      if (set >> lane & 1) expansions[set][lane] = word++;
  }
  return expansions;
}
inline constexpr auto expansions = make_expansions();

}  // namespace ranvier::kernel
#endif

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

// Half vectors where there are vectors of 16: gathering 8 lanes twice is faster than 16 once (Zen 5: 11 cycles against 16).
constexpr std::size_t lanes = 8;
constexpr std::size_t vectors = rans_lanes / lanes;
using Tag = hn::FixedTag<std::uint32_t, lanes>;
using Vector = hn::Vec<Tag>;

// The 32-bit words that lie `index` times `scale` bytes behind `base`. Into zeros: the plain gather of the compilers has
// a register of any content as its target, and then waits for whatever wrote that before.
template <int scale>
HWY_INLINE Vector gather(const void* base, Vector index) {
  const auto all = _mm256_set1_epi32(-1);
  return Vector{_mm256_mask_i32gather_epi32(_mm256_setzero_si256(), static_cast<const int*>(base), index.raw, all, scale)};
}

// Words in the order of the lanes to be refilled, dealt to them; returns how many bytes they took.
HWY_INLINE std::size_t refill(const std::byte* words_end, Vector& state) {
  const Tag d;
  const hn::Rebind<std::uint16_t, Tag> d16;
  const auto low = hn::Eq(hn::ShiftRight<16>(state), hn::Zero(d));
#if HWY_TARGET <= HWY_AVX3
  const auto set = static_cast<std::uint32_t>(low.raw);
  const auto count = static_cast<std::size_t>(std::popcount(set));
  const auto words = hn::PromoteTo(d, load(d16, words_end - 2 * count));
  const Vector dealt{_mm256_maskz_expand_epi32(low.raw, words.raw)};
#else
  const auto set = static_cast<std::size_t>(_mm256_movemask_ps(_mm256_castsi256_ps(low.raw)));
  const auto count = static_cast<std::size_t>(std::popcount(set));
  const auto words = hn::PromoteTo(d, load(d16, words_end - 2 * count));
  const hn::Rebind<std::uint8_t, Tag> d8;
  const auto places = hn::IndicesFromVec(d, hn::PromoteTo(d, hn::LoadU(d8, expansions[set].data())));
  const auto dealt = hn::TableLookupLanes(words, places);
#endif
  state = hn::IfThenElse(low, hn::Or(hn::ShiftLeft<16>(state), dealt), state);
  return 2 * count;
}

struct Packed {
  const RansTable& table;

  HWY_INLINE Vector take(Vector& state) const {
    const Tag d;
    const auto slot = hn::And(state, hn::Set(d, (1U << table.bits) - 1));
    const auto entry = gather<4>(table.packed.data(), slot);
    const auto offset = hn::And(hn::ShiftRight<8>(entry), hn::Set(d, 0xFFFU));
    const auto whole = hn::ShiftRightSame(state, table.bits);
    state = hn::Add(hn::Mul(hn::ShiftRight<20>(entry), whole), offset);
    return entry;
  }
};

struct TwoSteps {
  const RansTable& table;

  HWY_INLINE Vector take(Vector& state) const {
    const Tag d;
    const auto slot = hn::And(state, hn::Set(d, (1U << table.bits) - 1));
    const auto four = gather<1>(table.symbol.data(), slot);
    const auto symbol = hn::And(four, hn::Set(d, 0xFFU));
    const auto share = gather<4>(table.share.data(), symbol);
    const auto whole = hn::ShiftRightSame(state, table.bits);
    const auto offset = hn::Sub(slot, hn::And(share, hn::Set(d, 0xFFFFU)));
    state = hn::Add(hn::Mul(hn::ShiftRight<16>(share), whole), offset);
    return symbol;
  }
};

// Vectors from `v` down to 0: the last lanes took the first words when the code was written.
template <std::size_t v, class Table>
HWY_INLINE void step(const Table& table, Vector (&states)[vectors], const std::byte*& words, std::uint8_t* out) {
  const hn::Rebind<std::uint8_t, Tag> d8;
  hn::StoreU(hn::TruncateTo(d8, table.take(states[v])), d8, out + v * lanes);
  words -= refill(words, states[v]);
  if constexpr (v > 0) step<v - 1>(table, states, words, out);
}

template <class Table>
HWY_INLINE std::size_t decode_with(const Table& table, const std::byte* begin, const std::byte*& words,
                                   std::uint32_t* saved, std::uint8_t* out, std::size_t groups) {
  const Tag d;
  Vector states[vectors];
  for (std::size_t v = 0; v < vectors; ++v) states[v] = hn::LoadU(d, saved + v * lanes);
  const std::byte* word = words;
  std::size_t group = 0;
  for (; group < groups && word - begin >= std::ptrdiff_t{2 * rans_lanes}; ++group)
    step<vectors - 1>(table, states, word, out + group * rans_lanes);
  words = word;
  for (std::size_t v = 0; v < vectors; ++v) hn::StoreU(states[v], d, saved + v * lanes);
  return group;
}

std::size_t decode_groups(const RansTable& table, const std::byte* begin, const std::byte*& words,
                          std::uint32_t* states, std::uint8_t* out, std::size_t groups) {
  return table.bits <= RansTable::most_packed_bits ? decode_with(Packed{table}, begin, words, states, out, groups)
                                                   : decode_with(TwoSteps{table}, begin, words, states, out, groups);
}

#else

std::size_t decode_groups(const RansTable&, const std::byte*, const std::byte*&, std::uint32_t*, std::uint8_t*,
                          std::size_t) {
  return 0;
}

#endif

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(decode_groups);

std::size_t rans_decode_groups(const RansTable& table, const std::byte* begin, const std::byte*& words,
                               std::uint32_t* states, std::uint8_t* out, std::size_t groups) {
  return HWY_DYNAMIC_DISPATCH(decode_groups)(table, begin, words, states, out, groups);
}

}  // namespace ranvier::kernel
#endif
