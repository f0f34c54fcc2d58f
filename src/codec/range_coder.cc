// Arithmetic coding: symbols narrow an interval in proportion to their probabilities, and the code is the shortest
// number inside. Moffat, Neal and Witten, "Arithmetic Coding Revisited", ACM TOIS 1998; the interval is kept in 64 bits
// and gives off 32 at a time, so that its division by 2^16 loses nothing worth naming; a carry runs into what was
// written.
//
// Both sides learn the probabilities as they go, so there is no table: counts begin equal, grow with the symbols, and
// are turned into probabilities whenever they have grown by a thirty-second, at least every 256 symbols (the
// quasi-static model of Schindler, "A fast renormalisation for arithmetic coding", DCC 1998); they halve when large, to
// follow slow changes.
//
// Nearly any number is the code of some symbols. So behind the last one stands a mark, a symbol with a share of 2^-16:
// a number that was changed or cut off leads elsewhere, but for one in 65,536. Boyd, Cleary, Irvine, Rinsma-Melchert
// and Witten, "Integrating Error Detection into Arithmetic Coding", IEEE Trans. Communications 1997.
//
// Code of a block: two bytes, the least and the largest symbol; the number, most significant byte first, without the
// zeros at its end.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>

#include "codec/block_coder.h"

namespace ranvier {
namespace {

constexpr int probability_bits = 16;
constexpr std::uint32_t one = 1U << probability_bits;
constexpr int word_bits = 32;
// Where the mark begins: far from 0, which is what follows a number that was cut off.
constexpr std::uint32_t end_mark = 0x9E37;

class Model {
 public:
  explicit Model(unsigned symbols) : symbols_(symbols) {
    std::fill_n(counts_.begin(), symbols_, 1);
    update();
  }

  std::uint32_t start(unsigned symbol) const { return starts_[symbol]; }
  std::uint32_t share(unsigned symbol) const { return starts_[symbol + 1] - starts_[symbol]; }

  // The symbol whose interval holds `slot`, which is below `one`.
  unsigned find(std::uint32_t slot) const {
    unsigned symbol = nearby_[slot / slots_each];
    while (slot >= starts_[symbol + 1]) ++symbol;
    return symbol;
  }

  void learn(unsigned symbol) {
    counts_[symbol] += 2;
    if (--until_update_ == 0) update();
  }

 private:
  static constexpr std::uint32_t slots_each = 16;
  static constexpr std::uint32_t shortest_interval = 16, longest_interval = 256;
  static constexpr std::uint32_t most_counted = 1U << 18;

  void update() {
    const auto counts = std::span(counts_).first(symbols_);
    std::uint32_t total = std::accumulate(counts.begin(), counts.end(), 0U);
    if (total > most_counted) {
      for (std::uint32_t& count : counts) count = (count + 1) / 2;
      total = std::accumulate(counts.begin(), counts.end(), 0U);
    }
    // Every symbol has at least one part in 2^16; rounding leaves a few more, which the most frequent one gets.
    const std::uint64_t scale = (std::uint64_t{one - symbols_} << 32) / total;
    std::array<std::uint32_t, 256> share{};
    std::uint32_t given = 0;
    for (unsigned symbol = 0; symbol < symbols_; ++symbol)
      given += share[symbol] = 1 + static_cast<std::uint32_t>(counts[symbol] * scale >> 32);
    share[static_cast<std::size_t>(std::ranges::max_element(counts) - counts.begin())] += one - given;

    std::uint32_t start = 0;
    for (unsigned symbol = 0; symbol < symbols_; ++symbol) {
      starts_[symbol] = start;
      const std::uint32_t end = start + share[symbol];
      const std::uint32_t from = (start + slots_each - 1) / slots_each, to = (end + slots_each - 1) / slots_each;
      std::memset(nearby_.data() + from, static_cast<int>(symbol), to - from);
      start = end;
    }
    starts_[symbols_] = one;
    // Whenever a thirty-second more was seen; each symbol counts twice.
    until_update_ = std::clamp(total / 64, shortest_interval, longest_interval);
  }

  unsigned symbols_;
  std::uint32_t until_update_ = 0;
  std::array<std::uint32_t, 256> counts_{};
  std::array<std::uint32_t, 257> starts_{};
  std::array<std::uint8_t, one / slots_each> nearby_{};  // the symbol of the first of so many slots
};

// The number in [low, low + range), modulo 2^64, that has the fewest bytes before its zeros.
std::uint64_t shortest_in(std::uint64_t low, std::uint64_t range) {
  for (int kept = 8; kept < 64; kept += 8) {
    const std::uint64_t dropped = ~std::uint64_t{0} >> kept;
    const std::uint64_t number = (low + dropped) & ~dropped;
    if (number - low < range) return number;
  }
  return low;
}

class Encoder {
 public:
  explicit Encoder(Bytes out) : out_(out) {}

  void put(std::uint32_t start, std::uint32_t share) {
    const std::uint64_t unit = range_ >> probability_bits;
    add(unit * start);
    range_ = unit * share;
    if (range_ >> word_bits == 0) {
      write(low_ >> word_bits, 4);
      low_ <<= word_bits;
      range_ <<= word_bits;
    }
  }

  // The length of the code, or 0 if it did not fit.
  std::size_t finish() {
    put(end_mark, 1);
    add(shortest_in(low_, range_) - low_);
    write(low_, 8);
    if (full_) return 0;
    while (used_ > 0 && out_[used_ - 1] == std::byte{0}) --used_;
    return used_;
  }
  bool full() const { return full_; }

 private:
  void add(std::uint64_t amount) {
    low_ += amount;
    if (low_ < amount)
      for (std::size_t i = used_; i-- > 0;) {
        out_[i] = static_cast<std::byte>(static_cast<unsigned>(out_[i]) + 1);
        if (out_[i] != std::byte{0}) break;
      }
  }

  void write(std::uint64_t number, std::size_t bytes) {
    if (out_.size() - used_ < bytes) {
      full_ = true;
      return;
    }
    for (std::size_t i = 0; i < bytes; ++i) out_[used_ + i] = static_cast<std::byte>(number >> 8 * (bytes - 1 - i));
    used_ += bytes;
  }

  Bytes out_;
  std::size_t used_ = 0;
  std::uint64_t low_ = 0;
  std::uint64_t range_ = ~std::uint64_t{0};
  bool full_ = false;
};

class Decoder {
 public:
  explicit Decoder(ConstBytes code) : code_(code), offset_(read() << word_bits) {
    offset_ = latest_ = offset_ | read();
  }

  // `one` or more for what is no code.
  std::uint64_t slot() const { return offset_ / (range_ >> probability_bits); }

  void take(std::uint32_t start, std::uint32_t share) {
    const std::uint64_t unit = range_ >> probability_bits;
    offset_ -= unit * start;
    range_ = unit * share;
    if (range_ >> word_bits == 0) {
      const std::uint64_t word = read();
      offset_ = offset_ << word_bits | word;
      latest_ = latest_ << word_bits | word;
      range_ <<= word_bits;
    }
  }

  // The code is what Encoder::finish leaves after the same symbols, to the last byte.
  bool at_end() {
    if (slot() != end_mark) return false;
    take(end_mark, 1);
    const std::uint64_t low = latest_ - offset_;
    return code_.size() <= at_ && (code_.empty() || code_.back() != std::byte{0}) &&
           offset_ == shortest_in(low, range_) - low;
  }

 private:
  // The next 32 bits; behind the end there are zeros.
  std::uint64_t read() {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < 4; ++i, ++at_)
      word = word << 8 | (at_ < code_.size() ? static_cast<std::uint64_t>(code_[at_]) : 0);
    return word;
  }

  ConstBytes code_;
  std::size_t at_ = 0;
  std::uint64_t range_ = ~std::uint64_t{0};
  std::uint64_t offset_;      // the number less the low end of the interval
  std::uint64_t latest_ = 0;  // the 64 bits of the number that were read last
};

class RangeCoder final : public BlockCoder {
 public:
  RangeCoder() : BlockCoder("range", Bitmaps::where_shorter) {}

 protected:
  std::size_t encode_block(std::span<const std::uint8_t> symbols, Bytes out) const override {
    const auto [least, largest] = std::ranges::minmax(symbols);
    out[0] = static_cast<std::byte>(least);
    out[1] = static_cast<std::byte>(largest);
    Model model(1U + largest - least);
    Encoder encoder(out.subspan(header_bytes));
    for (const std::uint8_t value : symbols) {
      const unsigned symbol = value - least;
      encoder.put(model.start(symbol), model.share(symbol));
      model.learn(symbol);
      if (encoder.full()) return 0;
    }
    const std::size_t used = encoder.finish();
    return encoder.full() ? 0 : header_bytes + used;
  }

  bool decode_block(ConstBytes code, std::span<std::uint8_t> out) const override {
    if (code.size() < header_bytes || code[1] < code[0]) return false;
    const auto least = static_cast<unsigned>(code[0]), largest = static_cast<unsigned>(code[1]);
    Model model(1 + largest - least);
    Decoder decoder(code.subspan(header_bytes));
    for (std::uint8_t& symbol : out) {
      const std::uint64_t slot = decoder.slot();
      if (slot >= one) return false;
      const unsigned found = model.find(static_cast<std::uint32_t>(slot));
      decoder.take(model.start(found), model.share(found));
      model.learn(found);
      symbol = static_cast<std::uint8_t>(least + found);
    }
    return decoder.at_end();
  }

 private:
  static constexpr std::size_t header_bytes = 2;
};

}  // namespace

std::unique_ptr<Coder> range_coder() { return std::make_unique<RangeCoder>(); }

}  // namespace ranvier
