// rANS decoding in vectors: each lane is a state of its own, a gather looks up what its slot means, and lanes that fell
// below the floor take the next words of one common stream, in the order of the lanes (Giesen, "Interleaved entropy
// coders", arXiv:1402.3392). Words are taken from the end: the encoder, which must run backwards through the symbols,
// has then written them forwards. Compiled for each instruction set that can gather; the others leave all to the
// caller.
#include "kernel/rans.h"

#include <bit>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/rans_decode.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/gather-inl.h"
#include "kernel/memory-inl.h"
#include "kernel/sets_of_eight.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

constexpr std::size_t vector_lanes = HWY_LANES(std::uint32_t);
using Tag = GatherTag;
using Vector = Gathered;

// Words in the order of the lanes to be refilled, dealt to them; returns how many bytes they took.
HWY_INLINE std::size_t refill(const std::byte* words_end, Vector& state) {
  const Tag d;
  const hn::Rebind<std::uint16_t, Tag> d16;
  const auto low = hn::Eq(hn::ShiftRight<16>(state), hn::Zero(d));
#if HWY_TARGET <= HWY_AVX3
  const auto set = static_cast<std::uint32_t>(low.raw);
  const auto count = static_cast<std::size_t>(std::popcount(set));
  const auto words = hn::PromoteTo(d, load(d16, words_end - 2 * count));
  const Vector dealt{_mm512_maskz_expand_epi32(low.raw, words.raw)};
#else
  const auto set = static_cast<std::size_t>(_mm256_movemask_ps(_mm256_castsi256_ps(low.raw)));
  const auto count = static_cast<std::size_t>(std::popcount(set));
  const auto words = hn::PromoteTo(d, load(d16, words_end - 2 * count));
  const hn::Rebind<std::uint8_t, Tag> d8;
  const auto places = hn::IndicesFromVec(d, hn::PromoteTo(d, hn::LoadU(d8, ranks_or_0[set].data())));
  const auto dealt = hn::TableLookupLanes(words, places);
#endif
  state = hn::IfThenElse(low, hn::Or(hn::ShiftLeft<16>(state), dealt), state);
  return 2 * count;
}

// The two ways to look up (see RansTable): the symbols in the lowest bytes, and the states without them.
struct Packed {
  const std::uint32_t* packed;
  int bits;

  explicit Packed(const RansTable& table) : packed(table.packed.data()), bits(table.bits) {}
  HWY_INLINE Vector take(Vector& state) const {
    const Tag d;
    const auto slot = hn::And(state, hn::Set(d, (1U << bits) - 1));
    const auto entry = gather<4>(packed, slot);
    const auto offset = hn::And(hn::ShiftRight<8>(entry), hn::Set(d, 0xFFFU));
    state = hn::Add(hn::Mul(hn::ShiftRight<20>(entry), hn::ShiftRightSame(state, bits)), offset);
    return entry;
  }
};

struct TwoSteps {
  const std::uint8_t* symbols;
  const std::uint32_t* shares;
  int bits;

  explicit TwoSteps(const RansTable& table)
      : symbols(table.symbol.data()), shares(table.share.data()), bits(table.bits) {}
  HWY_INLINE Vector take(Vector& state) const {
    const Tag d;
    const auto slot = hn::And(state, hn::Set(d, (1U << bits) - 1));
    const auto symbol = hn::And(gather<1>(symbols, slot), hn::Set(d, 0xFFU));
    const auto share = gather<4>(shares, symbol);
    const auto offset = hn::Sub(slot, hn::And(share, hn::Set(d, 0xFFFFU)));
    state = hn::Add(hn::Mul(hn::ShiftRight<16>(share), hn::ShiftRightSame(state, bits)), offset);
    return symbol;
  }
};

// Vectors from `v` down to 0: the last lanes took the first words when the code was written.
template <std::size_t v, std::size_t vectors, class Table>
HWY_INLINE void step(const Table& table, Vector (&states)[vectors], const std::byte*& words, std::uint8_t* out) {
  const hn::Rebind<std::uint8_t, Tag> d8;
  hn::StoreU(hn::TruncateTo(d8, table.take(states[v])), d8, out + v * vector_lanes);
  words -= refill(words, states[v]);
  if constexpr (v > 0) step<v - 1, vectors>(table, states, words, out);
}

template <std::size_t lanes, class Table>
HWY_INLINE std::size_t decode_with(const Table& table, const std::byte* begin, const std::byte*& words,
                                   std::uint32_t* saved, std::uint8_t* out, std::size_t groups) {
  const Tag d;
  constexpr std::size_t vectors = lanes / vector_lanes;
  Vector states[vectors];
  for (std::size_t v = 0; v < vectors; ++v) states[v] = hn::LoadU(d, saved + v * vector_lanes);
  const std::byte* word = words;
  std::size_t group = 0;
  for (; group < groups && word - begin >= std::ptrdiff_t{2 * lanes}; ++group)
    step<vectors - 1, vectors>(table, states, word, out + group * lanes);
  words = word;
  for (std::size_t v = 0; v < vectors; ++v) hn::StoreU(states[v], d, saved + v * vector_lanes);
  return group;
}

template <std::size_t lanes>
std::size_t decode_lanes(const RansTable& table, const std::byte* begin, const std::byte*& words, std::uint32_t* states,
                         std::uint8_t* out, std::size_t groups) {
  return table.bits <= RansTable::most_packed_bits
             ? decode_with<lanes>(Packed(table), begin, words, states, out, groups)
             : decode_with<lanes>(TwoSteps(table), begin, words, states, out, groups);
}

std::size_t decode_groups(std::size_t lanes, const RansTable& table, const std::byte* begin, const std::byte*& words,
                          std::uint32_t* states, std::uint8_t* out, std::size_t groups) {
  return lanes == most_lanes ? decode_lanes<most_lanes>(table, begin, words, states, out, groups)
                             : decode_lanes<fewer_lanes>(table, begin, words, states, out, groups);
}

#else

std::size_t decode_groups(std::size_t, const RansTable&, const std::byte*, const std::byte*&, std::uint32_t*,
                          std::uint8_t*, std::size_t) {
  return 0;
}

#endif

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(decode_groups);

std::size_t rans_decode_groups(std::size_t lanes, const RansTable& table, const std::byte* begin,
                               const std::byte*& words, std::uint32_t* states, std::uint8_t* out, std::size_t groups) {
  return HWY_DYNAMIC_DISPATCH(decode_groups)(lanes, table, begin, words, states, out, groups);
}

}  // namespace ranvier::kernel
#endif
