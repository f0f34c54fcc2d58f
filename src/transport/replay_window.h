// Which numbers of the latest have been seen, so that none is taken twice: X. Zhang, T. Tsou, "IPsec Anti-Replay
// Algorithm without Bit Shifting", RFC 6479, 2012. A ring of bits that is cleared word by word as numbers grow. What is
// older than the ring counts as seen: it comes too late.
//
// Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace ranvier::transport {

class ReplayWindow {
 public:
  // At 1 Gbit/s and packets of 1400 bytes 45 ms: longer than paths reorder by.
  static constexpr std::uint64_t size = 4096;

  // Numbers begin at 1.
  bool is_new(std::uint64_t number) const {
    if (number > newest_) return true;
    if (number == 0 || newest_ - number >= size) return false;
    return (words_[word_of(number)] & bit_of(number)) == 0;
  }

  void add(std::uint64_t number) {
    if (number > newest_) {
      const std::uint64_t before = newest_ / bits, now = number / bits;
      const std::uint64_t passed = std::min<std::uint64_t>(now - before, words);
      for (std::uint64_t i = 1; i <= passed; ++i) words_[(before + i) % words] = 0;
      newest_ = number;
    }
    words_[word_of(number)] |= bit_of(number);
  }

 private:
  static constexpr std::uint64_t bits = 64;
  static constexpr std::uint64_t words = size / bits + 1;  // the newest word is not full yet

  static std::size_t word_of(std::uint64_t number) { return static_cast<std::size_t>(number / bits % words); }
  static std::uint64_t bit_of(std::uint64_t number) { return std::uint64_t{1} << number % bits; }

  std::array<std::uint64_t, words> words_{};
  std::uint64_t newest_ = 0;
};

}  // namespace ranvier::transport
