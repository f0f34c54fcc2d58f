// Codes of single positive integers, bit by bit. A number of b + 1 bits takes 2b + 1 bits in the gamma code, about
// b + 2 log2(b + 1) + 1 in the delta code; Rice's takes r + 1 + n / 2^r and is the best there is for a geometric
// distribution of mean near 2^r. Elias, "Universal Codeword Sets and Representations of the Integers", IEEE Trans.
// Information Theory 1975; Golomb, "Run-Length Encodings", ibid. 1966; Rice, "Some Practical Universal Noiseless Coding
// Techniques", JPL 1979. The exponential Golomb code is gamma above r plain bits (Teuhola 1978).
#pragma once

#include <bit>
#include <cstdint>

#include "codec/bit_stream.h"

namespace ranvier {

// Zeros before the next one; none of these codes has more than 31, so more is not a code.
inline constexpr int most_zeros = 31;

inline int bits_of(std::uint32_t number) { return static_cast<int>(std::bit_width(number)); }

struct EliasGamma {
  static int bits(std::uint32_t number) { return 2 * bits_of(number) - 1; }
  static void put(BitWriter& out, std::uint32_t number) {
    const int below = bits_of(number) - 1;
    out.put(std::uint64_t{1} << below, below + 1);
    out.put(number ^ (std::uint32_t{1} << below), below);
  }
  // 0 for what is no code.
  static std::uint32_t take(BitReader& in) {
    const int below = std::countr_zero(in.peek());
    if (below > most_zeros) return 0;
    in.skip(static_cast<std::size_t>(below) + 1);
    return (std::uint32_t{1} << below) | static_cast<std::uint32_t>(in.take(below));
  }
};

struct EliasDelta {
  static int bits(std::uint32_t number) {
    const int width = bits_of(number);
    return EliasGamma::bits(static_cast<std::uint32_t>(width)) + width - 1;
  }
  static void put(BitWriter& out, std::uint32_t number) {
    const int below = bits_of(number) - 1;
    EliasGamma::put(out, static_cast<std::uint32_t>(below) + 1);
    out.put(number ^ (std::uint32_t{1} << below), below);
  }
  static std::uint32_t take(BitReader& in) {
    const std::uint32_t width = EliasGamma::take(in);
    if (width < 1 || width > 32) return 0;
    return (std::uint32_t{1} << (width - 1)) | static_cast<std::uint32_t>(in.take(static_cast<int>(width) - 1));
  }
};

// Of number - 1, so that all three codes begin at 1. The quotient is in unary, whatever its size.
struct GolombRice {
  int r;

  std::uint64_t bits(std::uint32_t number) const { return ((number - 1) >> r) + 1ULL + static_cast<unsigned>(r); }
  void put(BitWriter& out, std::uint32_t number) const {
    const std::uint32_t value = number - 1;
    std::uint32_t quotient = value >> r;
    for (; quotient > 24; quotient -= 24) out.put(0, 24);
    // The one that ends the quotient and the plain bits go at once: at most 25 + 31.
    const std::uint64_t plain = value & ((std::uint64_t{1} << r) - 1);
    out.put((1 | plain << 1) << quotient, static_cast<int>(quotient) + 1 + r);
  }
  // 0 for what is no code.
  std::uint32_t take(BitReader& in) const {
    std::uint64_t quotient = 0;
    std::uint64_t ahead = in.peek();
    while ((ahead & 0xFFFFFFFF) == 0) {
      in.skip(32);
      quotient += 32;
      if (in.overrun()) return 0;
      ahead = in.peek();
    }
    const int zeros = std::countr_zero(ahead);
    in.skip(static_cast<std::size_t>(zeros) + 1);
    quotient += static_cast<unsigned>(zeros);
    const std::uint64_t value = quotient << r | in.take(r);
    return value < 0xFFFFFFFF ? static_cast<std::uint32_t>(value + 1) : 0;
  }
};

// The exponential Golomb code of order r, for numbers from 0 to 2^16.
struct ExpGolomb {
  int r;

  int bits(std::uint32_t number) const { return EliasGamma::bits((number >> r) + 1) + r; }
  void put(BitWriter& out, std::uint32_t number) const {
    EliasGamma::put(out, (number >> r) + 1);
    out.put(number & ((std::uint32_t{1} << r) - 1), r);
  }
  // More than 2^16 for what is no code.
  std::uint32_t take(BitReader& in) const {
    const std::uint32_t above = EliasGamma::take(in) - 1;
    const auto plain = static_cast<std::uint32_t>(in.take(r));
    return above <= 0xFFFF ? above << r | plain : 0xFFFFFFFF;
  }
};

}  // namespace ranvier
