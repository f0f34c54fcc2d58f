// rANS encoding in vectors, the mirror image of rans_decode.cc: lanes that would grow too large give a word first, and
// the words go out in the order of the lanes. The division by the frequency f is a product with floor(2^32 / f), whose
// upper half is the quotient or one less, which the remainder tells.
#include "kernel/rans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/rans_encode.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/compress-inl.h"
#include "kernel/gather-inl.h"
#include "kernel/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2

constexpr std::size_t vector_lanes = HWY_LANES(std::uint32_t);
using Tag = GatherTag;
using Vector = Gathered;

// The upper halves of the 64-bit products of the lanes.
HWY_INLINE Vector upper_half(Vector a, Vector b) {
  const Tag d;
  const hn::Repartition<std::uint64_t, Tag> d64;
  const auto odd_a = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a)));
  const auto odd_b = hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, b)));
  const auto even = hn::ShiftRight<32>(hn::MulEven(a, b));
  return hn::OddEven(hn::BitCast(d, hn::MulEven(odd_a, odd_b)), hn::BitCast(d, even));
}

struct Looked {
  Vector share, reciprocal;
};

// A gather of eight is some forty operations of an AMD processor, and two of them more than all the rest of a step.
HWY_INLINE Looked look_up(const RansSteps& steps, const std::uint8_t* symbols) {
#if HWY_TARGET == HWY_AVX2
  const auto at = [&](std::size_t lane) { return reinterpret_cast<const __m64*>(&steps.of[symbols[lane]]); };
  const auto two = [&](std::size_t lane) {
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at(lane)));
    return _mm_loadh_pi(_mm_castsi128_ps(low), at(lane + 1));
  };
  const auto four = [&](std::size_t lane) { return _mm256_set_m128(two(lane + 4), two(lane)); };
  const __m256 even = four(0), odd = four(2);
  return {Vector{_mm256_castps_si256(_mm256_shuffle_ps(even, odd, _MM_SHUFFLE(2, 0, 2, 0)))},
          Vector{_mm256_castps_si256(_mm256_shuffle_ps(even, odd, _MM_SHUFFLE(3, 1, 3, 1)))}};
#else
  const Tag d;
  const hn::Rebind<std::uint8_t, Tag> d8;
  const auto symbol = hn::PromoteTo(d, load(d8, reinterpret_cast<const std::byte*>(symbols)));
  constexpr int size = sizeof(RansSteps::Step);
  return {gather<size>(&steps.of[0].share, symbol), gather<size>(&steps.of[0].reciprocal, symbol)};
#endif
}

HWY_INLINE auto at_least(Vector a, Vector b) { return hn::Eq(hn::Max(a, b), a); }

template <std::size_t v, std::size_t vectors>
HWY_INLINE void step(const RansSteps& steps, const std::uint8_t* symbols, Vector (&states)[vectors],
                     std::byte*& words) {
  const Tag d;
  const hn::Rebind<std::uint16_t, Tag> d16;
  const int bits = steps.bits;
  const auto [share, reciprocal] = look_up(steps, symbols + v * vector_lanes);
  const auto f = hn::ShiftRight<16>(share);
  const auto start = hn::And(share, hn::Set(d, 0xFFFFU));

  const auto full = at_least(states[v], hn::ShiftLeftSame(f, 32 - bits));
  store(hn::TruncateTo(d16, compress(d, states[v], full)), d16, words);
  words += 2 * hn::CountTrue(d, full);
  const auto x = hn::IfThenElse(full, hn::ShiftRight<16>(states[v]), states[v]);

  const auto quotient = upper_half(x, reciprocal);
  const auto rest = hn::Sub(x, hn::Mul(quotient, f));
  const auto made_good = hn::IfThenElseZero(at_least(rest, f), hn::Sub(hn::Set(d, 1U << bits), f));
  states[v] = hn::Add(hn::Add(hn::ShiftLeftSame(quotient, bits), start), hn::Add(rest, made_good));
  if constexpr (v + 1 < vectors) step<v + 1, vectors>(steps, symbols, states, words);
}

template <std::size_t lanes>
std::size_t encode_lanes(const RansSteps& steps, const std::uint8_t* symbols, std::size_t groups, std::uint32_t* saved,
                         std::byte*& words, const std::byte* end) {
  const Tag d;
  std::byte* word = words;
  constexpr std::size_t vectors = lanes / vector_lanes;
  Vector states[vectors];
  for (std::size_t v = 0; v < vectors; ++v) states[v] = hn::LoadU(d, saved + v * vector_lanes);
  for (; groups > 0 && end - word >= std::ptrdiff_t{2 * lanes}; --groups)
    step<0, vectors>(steps, symbols + (groups - 1) * lanes, states, word);
  for (std::size_t v = 0; v < vectors; ++v) hn::StoreU(states[v], d, saved + v * vector_lanes);
  words = word;
  return groups;
}

std::size_t encode_groups(std::size_t lanes, const RansSteps& steps, const std::uint8_t* symbols, std::size_t groups,
                          std::uint32_t* states, std::byte*& words, const std::byte* end) {
  return lanes == most_lanes ? encode_lanes<most_lanes>(steps, symbols, groups, states, words, end)
                             : encode_lanes<fewer_lanes>(steps, symbols, groups, states, words, end);
}

#else

std::size_t encode_groups(std::size_t, const RansSteps&, const std::uint8_t*, std::size_t groups, std::uint32_t*,
                          std::byte*&, const std::byte*) {
  return groups;
}

#endif

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(encode_groups);

std::size_t rans_encode_groups(std::size_t lanes, const RansSteps& steps, const std::uint8_t* symbols,
                               std::size_t groups, std::uint32_t* states, std::byte*& words, const std::byte* end) {
  return HWY_DYNAMIC_DISPATCH(encode_groups)(lanes, steps, symbols, groups, states, words, end);
}

}  // namespace ranvier::kernel
#endif
