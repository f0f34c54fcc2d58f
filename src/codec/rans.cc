// Range asymmetric numeral systems: a state x becomes floor(x / f) * 2^bits + start + x mod f for a symbol of frequency
// f, so it grows by log2(2^bits / f) bits, and the decoder undoes exactly that, last symbol first. Duda, "Asymmetric
// numeral systems", arXiv:1311.2540. Symbol i belongs to state i mod lanes, and all states share one stream of 16-bit
// words (Giesen, "Interleaved entropy coders", arXiv:1402.3392), so neither side waits for the state before.
//
// Code of a block: 2 bits for the frequencies' sum, their table, zeros to a whole byte, the words in the order of
// writing, the final states. The encoder goes from the last symbol to the first, inside a group of `lanes` symbols from
// the first lane to the last. Its states begin at the floor, where the decoder must end, with no word left over: which
// a damaged code hardly ever does.
#include <algorithm>
#include <array>
#include <cstring>

#include "codec/block_coder.h"
#include "codec/frequencies.h"
#include "kernel/rans_decode.h"

namespace ranvier {
namespace {

using kernel::rans_floor;
using kernel::RansTable;

// A state costs about two bytes beyond the symbols' own, so short blocks have fewer.
constexpr std::size_t lanes_for(std::size_t symbols) {
  return symbols < 4096 ? 1 : symbols < 65536 ? 8 : kernel::rans_lanes;
}

constexpr std::size_t word_bytes = 2;
constexpr int choice_bits = 2;

// A small sum has a short table, a large one serves rare symbols better: the encoder takes what is shortest in all.
constexpr std::array sums{10, 12, RansTable::most_bits};

// ---- Encoding

// What a symbol does to a state, without a division: the quotient is the upper half of a product, exact for x < 2^32.
// A frequency of 1 would want the reciprocal 2^64; with one less the quotient is x - 1, which `offset` makes good.
struct Step {
  std::uint64_t reciprocal;
  std::uint32_t most;  // a state of this size or more gives a word first
  std::uint16_t offset;
  std::uint16_t complement;
};

std::array<Step, 256> steps_of(const Frequencies& frequencies) {
  std::array<Step, 256> steps{};
  std::uint32_t start = 0;
  const std::uint32_t sum = 1U << frequencies.bits;
  for (std::size_t symbol = 0; symbol < steps.size(); ++symbol) {
    const std::uint32_t f = frequencies.of[symbol];
    if (f == 0) continue;
    steps[symbol] = {.reciprocal = f == 1 ? ~std::uint64_t{0} : ~std::uint64_t{0} / f + 1,
                     .most = f << (32 - frequencies.bits),
                     .offset = static_cast<std::uint16_t>(f == 1 ? start + sum - 1 : start),
                     .complement = static_cast<std::uint16_t>(sum - f)};
    start += f;
  }
  return steps;
}

std::uint32_t upper_half(std::uint64_t a, std::uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint32_t>((static_cast<Wide>(a) * b) >> 64);
}

// The word is always written, and kept by moving on: whether a state gives one is too random to be predicted.
std::byte* put(const Step& step, std::uint32_t& state, std::byte* words) {
  const std::uint32_t full = state >= step.most;
  std::memcpy(words, &state, word_bytes);
  words += word_bytes * full;
  const std::uint32_t x = state >> 16 * full;
  state = x + step.offset + upper_half(x, step.reciprocal) * step.complement;
  return words;
}

// Writes words and states; the bytes taken, or 0 if they do not fit.
template <std::size_t lanes>
std::size_t put_symbols(const std::array<Step, 256>& steps, std::span<const std::uint8_t> symbols, Bytes out) {
  std::array<std::uint32_t, lanes> states;
  states.fill(rans_floor);
  std::byte* words = out.data();
  const std::byte* const end = out.data() + out.size();
  std::size_t left = symbols.size();
  while (left > 0) {
    if (end - words < static_cast<std::ptrdiff_t>(lanes * word_bytes)) return 0;
    const std::size_t taken = left % lanes ? left % lanes : lanes;
    left -= taken;
    const std::uint8_t* group = symbols.data() + left;
    if (taken == lanes)
      for (std::size_t lane = 0; lane < lanes; ++lane) words = put(steps[group[lane]], states[lane], words);
    else
      for (std::size_t lane = 0; lane < taken; ++lane) words = put(steps[group[lane]], states[lane], words);
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
    if (index == 0 || next.bits < best.bits) best = next;
  }
  return best;
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

// Gives a state below the floor its next word; false if there is none.
bool refill(std::uint32_t& state, const std::byte* begin, const std::byte*& words) {
  if (state >= rans_floor) return true;
  if (words == begin) return false;
  words -= word_bytes;
  std::uint16_t word = 0;
  std::memcpy(&word, words, word_bytes);
  state = state << 16 | word;
  return true;
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
  if constexpr (lanes == kernel::rans_lanes)
    done = lanes * kernel::rans_decode_groups(table, begin, words, states.data(), out.data(), out.size() / lanes);
  while (done < out.size()) {
    const std::size_t taken = std::min(lanes, out.size() - done);
    for (std::size_t lane = taken; lane-- > 0;) {
      out[done + lane] = take(table, states[lane]);
      if (!refill(states[lane], begin, words)) return false;
    }
    done += taken;
  }
  return words == begin && std::ranges::all_of(states, [](std::uint32_t state) { return state == rans_floor; });
}

class Rans final : public BlockCoder {
 public:
  Rans() : BlockCoder("rans") {}

 protected:
  std::size_t encode_block(std::span<const std::uint8_t> symbols, Bytes out) const override {
    const Choice choice = cheapest(histogram_of(symbols));
    if (choice.bits / 8 >= static_cast<double>(out.size())) return 0;
    BitWriter header(out);
    header.put(choice.index, choice_bits);
    put_table(header, choice.frequencies.of);
    const std::size_t used = header.finish();
    if (!header.fits()) return 0;
    const auto steps = steps_of(choice.frequencies);
    const Bytes rest = out.subspan(used);
    std::size_t written = 0;
    switch (lanes_for(symbols.size())) {
      case 1:
        written = put_symbols<1>(steps, symbols, rest);
        break;
      case 8:
        written = put_symbols<8>(steps, symbols, rest);
        break;
      default:
        written = put_symbols<kernel::rans_lanes>(steps, symbols, rest);
    }
    return written == 0 ? 0 : used + written;
  }

  bool decode_block(ConstBytes code, std::span<std::uint8_t> out) const override {
    BitReader header(code);
    const auto choice = static_cast<std::size_t>(header.take(choice_bits));
    if (choice >= sums.size()) return false;
    RansTable table;
    table.bits = sums[choice];
    NumberTable frequencies;
    if (!take_table(header, (1U << table.bits) - 1, frequencies) || !header.align() || header.overrun() ||
        !fill_table(frequencies, table))
      return false;
    switch (lanes_for(out.size())) {
      case 1:
        return take_symbols<1>(table, header.rest(), out);
      case 8:
        return take_symbols<8>(table, header.rest(), out);
      default:
        return take_symbols<kernel::rans_lanes>(table, header.rest(), out);
    }
  }
};

}  // namespace

std::unique_ptr<Coder> rans() { return std::make_unique<Rans>(); }

}  // namespace ranvier
