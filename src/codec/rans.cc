// Range asymmetric numeral systems: a state x becomes floor(x / f) * 2^bits + start + x mod f for a symbol of frequency
// f, so it grows by log2(2^bits / f) bits, and the decoder undoes exactly that, last symbol first. Duda, "Asymmetric
// numeral systems", arXiv:1311.2540. Symbol i belongs to state i mod lanes, and all states share one stream of 16-bit
// words (Giesen, "Interleaved entropy coders", arXiv:1402.3392), so neither side waits for the state before.
//
// Code of a block: 2 bits for the frequencies' sum, 2 for the number of states, the frequencies' table, zeros to a
// whole byte, the words in the order of writing, the final states. The encoder goes from the last symbol to the first,
// inside a group of `lanes` symbols from the first lane to the last. Its states begin at the
// floor, where the decoder must end, with no word left over: so it notices most damage, but not a slot that moves to a
// neighbour of the same frequency.
#include <algorithm>
#include <array>
#include <cstring>

#include "codec/block_coder.h"
#include "codec/frequencies.h"
#include "kernel/rans.h"

namespace ranvier {
namespace {

using kernel::rans_floor;
using kernel::RansSteps;
using kernel::RansTable;

// How many states a block has: 1, 8, 32 or 64. Each costs about two bytes beyond the symbols' own, so short codes have
// fewer: 1 % at most. But 32 go several times as fast as 8, for which there is no vector loop.
constexpr unsigned interleaving_for(double code_bytes) {
  return code_bytes < 1600 ? 0 : code_bytes < 6400 ? 1 : code_bytes < 51200 ? 2 : 3;
}

// Calls function.operator()<lanes>() for the number of states behind `interleaving`.
template <class Function>
auto with_lanes(unsigned interleaving, Function function) {
  switch (interleaving) {
    case 0:
      return function.template operator()<1>();
    case 1:
      return function.template operator()<8>();
    case 2:
      return function.template operator()<kernel::fewer_lanes>();
    default:
      return function.template operator()<kernel::most_lanes>();
  }
}

constexpr std::size_t word_bytes = 2;
constexpr int choice_bits = 2;

// A small sum has a short table, a large one serves rare symbols better: the encoder takes what is shortest in all, but
// the largest, which decodes at half the speed, only where it saves more than 0.4 %.
constexpr std::array sums{10, RansTable::most_packed_bits, RansTable::most_bits};
constexpr double worth_two_steps = 0.996;

// ---- Encoding

RansSteps steps_of(const Frequencies& frequencies) {
  RansSteps steps;
  steps.bits = frequencies.bits;
  std::uint32_t start = 0;
  for (std::size_t symbol = 0; symbol < frequencies.of.size(); ++symbol) {
    const std::uint32_t f = frequencies.of[symbol];
    steps.of[symbol].share = f << 16 | start;
    steps.of[symbol].reciprocal = f > 1 ? static_cast<std::uint32_t>((std::uint64_t{1} << 32) / f) : 0xFFFFFFFF;
    start += f;
  }
  return steps;
}

// The word is always written, and kept by moving on: whether a state gives one is too random to be predicted. The
// quotient is exact or one less (see kernel/rans_encode.cc).
std::byte* put(const RansSteps& steps, std::uint8_t symbol, std::uint32_t& state, std::byte* words) {
  const auto [share, reciprocal] = steps.of[symbol];
  const std::uint32_t f = share >> 16, start = share & 0xFFFF;
  const std::uint32_t full = state >= f << (32 - steps.bits);
  std::memcpy(words, &state, word_bytes);
  const std::uint32_t x = state >> 16 * full;
  const auto quotient = static_cast<std::uint32_t>(std::uint64_t{x} * reciprocal >> 32);
  const std::uint32_t rest = x - quotient * f;
  state = (quotient << steps.bits) + start + rest + (rest >= f ? (1U << steps.bits) - f : 0);
  return words + word_bytes * full;
}

// Writes words and states; the bytes taken, or 0 if they do not fit.
template <std::size_t lanes>
std::size_t put_symbols(const RansSteps& steps, std::span<const std::uint8_t> symbols, Bytes out) {
  std::array<std::uint32_t, lanes> states;
  states.fill(rans_floor);
  std::byte* words = out.data();
  const std::byte* const end = out.data() + out.size();
  const std::size_t rest = symbols.size() % lanes;
  std::size_t groups = symbols.size() / lanes;
  if (out.size() < lanes * word_bytes) return 0;
  for (std::size_t lane = 0; lane < rest; ++lane)
    words = put(steps, symbols[groups * lanes + lane], states[lane], words);
  if constexpr (lanes >= kernel::fewer_lanes)
    groups = kernel::rans_encode_groups(lanes, steps, symbols.data(), groups, states.data(), words, end);
  while (groups > 0) {
    if (end - words < static_cast<std::ptrdiff_t>(lanes * word_bytes)) return 0;
    const std::uint8_t* group = symbols.data() + --groups * lanes;
    for (std::size_t lane = 0; lane < lanes; ++lane) words = put(steps, group[lane], states[lane], words);
  }
  if (end - words < static_cast<std::ptrdiff_t>(sizeof states)) return 0;
  std::memcpy(words, states.data(), sizeof states);
  return static_cast<std::size_t>(words - out.data()) + sizeof states;
}

struct Choice {
  std::size_t index = 0;
  Frequencies frequencies;
  double bits = 0;  // of table and symbols
};

Choice cheapest(const Histogram& histogram) {
  Choice best;
  for (std::size_t index = 0; index < sums.size(); ++index) {
    Choice next{.index = index, .frequencies = fit(histogram, sums[index])};
    next.bits = cost_bits(histogram, next.frequencies) + static_cast<double>(table_bits(next.frequencies.of));
    const double handicap = sums[index] > RansTable::most_packed_bits ? worth_two_steps : 1;
    if (index == 0 || next.bits < handicap * best.bits) best = next;
  }
  return best;
}

// Whether a sample says that coding saves less than 1 %, as for mantissas: then the block is spared further looks. The
// entropy of a sample is less than that of the block, by about 255 / (2 ln 2 * 4096) = 0.045 bits here.
bool looks_uniform(std::span<const std::uint8_t> symbols) {
  constexpr std::size_t pieces = 16, piece = 256;
  if (symbols.size() < 2 * pieces * piece) return false;
  std::array<std::uint8_t, pieces * piece> sample;
  for (std::size_t i = 0; i < pieces; ++i)
    std::ranges::copy(symbols.subspan(symbols.size() / pieces * i, piece), sample.begin() + i * piece);
  return entropy_bits(histogram_of(sample)) > 7.9 * sample.size();
}

// ---- Decoding

bool fill_table(const NumberTable& frequencies, RansTable& table) {
  const std::uint32_t sum = 1U << table.bits;
  std::uint32_t start = 0;
  for (std::uint32_t symbol = 0; symbol < frequencies.size(); ++symbol) {
    const std::uint32_t f = frequencies[symbol];
    if (f > sum - start) return false;
    if (table.bits <= RansTable::most_packed_bits) {
      for (std::uint32_t offset = 0; offset < f; ++offset)
        table.packed[start + offset] = f << 20 | offset << 8 | symbol;
    } else {
      std::memset(table.symbol.data() + start, static_cast<int>(symbol), f);
      table.share[symbol] = f << 16 | start;
    }
    start += f;
  }
  return start == sum;
}

std::uint8_t take(const RansTable& table, std::uint32_t& state) {
  const std::uint32_t slot = state & ((1U << table.bits) - 1);
  if (table.bits <= RansTable::most_packed_bits) {
    const std::uint32_t entry = table.packed[slot];
    state = (entry >> 20) * (state >> table.bits) + (entry >> 8 & 0xFFF);
    return static_cast<std::uint8_t>(entry);
  }
  const std::uint8_t symbol = table.symbol[slot];
  const std::uint32_t share = table.share[symbol];
  state = (share >> 16) * (state >> table.bits) + slot - (share & 0xFFFF);
  return symbol;
}

// One symbol; false if its state wants a word and there is none.
bool take_last(const RansTable& table, std::uint32_t& state, const std::byte* begin, const std::byte*& words,
               std::uint8_t& symbol) {
  symbol = take(table, state);
  if (state >= rans_floor) return true;
  if (words == begin) return false;
  words -= word_bytes;
  std::uint16_t word = 0;
  std::memcpy(&word, words, word_bytes);
  state = state << 16 | word;
  return true;
}

// The same where a word is sure to be there, without a branch that cannot be predicted.
std::uint8_t take_one(const RansTable& table, std::uint32_t& state, const std::byte*& words) {
  const std::uint8_t symbol = take(table, state);
  const std::uint32_t low = state < rans_floor;
  words -= word_bytes * low;
  std::uint16_t word = 0;
  std::memcpy(&word, words, word_bytes);
  state = state << 16 * low | (word & -low);
  return symbol;
}

// Words end where the states, which the code ends with, begin.
template <std::size_t lanes>
bool take_symbols(const RansTable& table, ConstBytes code, std::span<std::uint8_t> out) {
  std::array<std::uint32_t, lanes> states;
  if (code.size() < sizeof states || (code.size() - sizeof states) % word_bytes != 0) return false;
  const std::byte* const begin = code.data();
  const std::byte* words = begin + code.size() - sizeof states;
  std::memcpy(states.data(), words, sizeof states);
  if (!std::ranges::all_of(states, [](std::uint32_t state) { return state >= rans_floor; })) return false;

  std::size_t done = 0;
  if constexpr (lanes >= kernel::fewer_lanes)
    done =
        lanes * kernel::rans_decode_groups(lanes, table, begin, words, states.data(), out.data(), out.size() / lanes);
  for (; out.size() - done >= lanes && words - begin >= static_cast<std::ptrdiff_t>(lanes * word_bytes); done += lanes)
    for (std::size_t lane = lanes; lane-- > 0;) out[done + lane] = take_one(table, states[lane], words);
  while (done < out.size()) {
    const std::size_t taken = std::min(lanes, out.size() - done);
    for (std::size_t lane = taken; lane-- > 0;)
      if (!take_last(table, states[lane], begin, words, out[done + lane])) return false;
    done += taken;
  }
  return words == begin && std::ranges::all_of(states, [](std::uint32_t state) { return state == rans_floor; });
}

class Rans final : public BlockCoder {
 public:
  Rans() : BlockCoder("rans", Bitmaps::where_shorter) {}

 protected:
  std::size_t encode_block(std::span<const std::uint8_t> symbols, Bytes out) const override {
    if (looks_uniform(symbols)) return 0;
    const Choice choice = cheapest(histogram_of(symbols));
    if (choice.bits / 8 >= static_cast<double>(out.size())) return 0;
    const unsigned interleaving = interleaving_for(choice.bits / 8);
    BitWriter header(out);
    header.put(choice.index, choice_bits);
    header.put(interleaving, choice_bits);
    put_table(header, choice.frequencies.of);
    const std::size_t used = header.finish();
    if (!header.fits()) return 0;
    const RansSteps steps = steps_of(choice.frequencies);
    const Bytes rest = out.subspan(used);
    const std::size_t written =
        with_lanes(interleaving, [&]<std::size_t lanes>() { return put_symbols<lanes>(steps, symbols, rest); });
    return written == 0 ? 0 : used + written;
  }

  bool decode_block(ConstBytes code, std::span<std::uint8_t> out) const override {
    BitReader header(code);
    const auto choice = static_cast<std::size_t>(header.take(choice_bits));
    const auto interleaving = static_cast<unsigned>(header.take(choice_bits));
    if (choice >= sums.size()) return false;
    RansTable table;
    table.bits = sums[choice];
    NumberTable frequencies;
    if (!take_table(header, (1U << table.bits) - 1, frequencies) || !header.align() || header.overrun() ||
        !fill_table(frequencies, table))
      return false;
    return with_lanes(interleaving,
                      [&]<std::size_t lanes>() { return take_symbols<lanes>(table, header.rest(), out); });
  }
};

}  // namespace

std::unique_ptr<Coder> rans() { return std::make_unique<Rans>(); }

}  // namespace ranvier
