#include "kernel/pack.h"

#include <algorithm>
#include <array>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/pack.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

// A group of symbols shares whole bytes. A group's symbols are one number in little endian, its first symbol in the
// lowest bits; eight symbols are gathered from, and spread to, the bytes of a 64-bit word by folding it log2(8) times.
HWY_INLINE std::uint64_t load_word(const void* from) {
  std::uint64_t word;
  std::memcpy(&word, from, 8);
  return word;
}

template <unsigned bits>
HWY_INLINE std::uint64_t gather_bits(std::uint64_t word) {
  // Single bits: byte i, 8 i places up, meets the factor's bit 56 - 7 i in place 56 + i; no two others meet, so nothing
  // is carried.
  if (bits == 1) return word * 0x0102040810204080 >> 56;
  constexpr std::uint64_t byte_pairs = 0x00FF00FF00FF00FF, quads = 0x0000FFFF0000FFFF, octet = 0x00000000FFFFFFFF;
  word = (word | word >> (8 - bits)) & (byte_pairs & (((1ULL << (2 * bits)) - 1) * 0x0001000100010001));
  word = (word | word >> (16 - 2 * bits)) & (quads & (((1ULL << (4 * bits)) - 1) * 0x0000000100000001));
  return (word | word >> (32 - 4 * bits)) & octet;
}
template <unsigned bits>
HWY_INLINE std::uint64_t spread_bits(std::uint64_t word) {
  word = (word | word << (32 - 4 * bits)) & (((1ULL << (4 * bits)) - 1) * 0x0000000100000001);
  word = (word | word << (16 - 2 * bits)) & (((1ULL << (2 * bits)) - 1) * 0x0001000100010001);
  return (word | word << (8 - bits)) & (((1ULL << bits) - 1) * 0x0101010101010101);
}

template <unsigned bits>
void pack_bits(const std::uint8_t* HWY_RESTRICT symbols, std::size_t count, std::uint8_t* HWY_RESTRICT packed) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8, packed += bits) {
    const std::uint64_t word = gather_bits<bits>(load_word(symbols + i));
    std::memcpy(packed, &word, bits);
  }
  if (i == count) return;
  std::array<std::uint8_t, 8> last{};
  std::copy(symbols + i, symbols + count, last.begin());
  const std::uint64_t word = gather_bits<bits>(load_word(last.data()));
  std::memcpy(packed, &word, ((count - i) * bits + 7) / 8);
}
template <unsigned bits>
void unpack_bits(const std::uint8_t* HWY_RESTRICT packed, std::size_t count, std::uint8_t* HWY_RESTRICT symbols) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8, packed += bits) {
    std::uint64_t word = 0;
    std::memcpy(&word, packed, bits);
    word = spread_bits<bits>(word);
    std::memcpy(symbols + i, &word, 8);
  }
  if (i == count) return;
  std::uint64_t word = 0;
  std::memcpy(&word, packed, ((count - i) * bits + 7) / 8);
  word = spread_bits<bits>(word);
  std::memcpy(symbols + i, &word, count - i);
}

// Half bytes are the common case and simple enough for the compiler to vectorize.
void pack_halves(const std::uint8_t* HWY_RESTRICT symbols, std::size_t count, std::uint8_t* HWY_RESTRICT packed) {
  for (std::size_t i = 0; i < count / 2; ++i)
    packed[i] = static_cast<std::uint8_t>(symbols[2 * i] | symbols[2 * i + 1] << 4);
  if (count % 2 != 0) packed[count / 2] = symbols[count - 1];
}
void unpack_halves(const std::uint8_t* HWY_RESTRICT packed, std::size_t count, std::uint8_t* HWY_RESTRICT symbols) {
  for (std::size_t i = 0; i < count / 2; ++i) {
    symbols[2 * i] = packed[i] & 15;
    symbols[2 * i + 1] = packed[i] >> 4;
  }
  if (count % 2 != 0) symbols[count - 1] = packed[count / 2] & 15;
}

// Five ternary symbols are a number below 243: s0 + 3 s1 + 9 s2 + 27 s3 + 81 s4. They are byte 4 of the product of the
// five bytes and this word; of the bytes below it none exceeds 255 either, so that nothing is carried.
constexpr std::uint64_t powers_of_three = 1ULL << 32 | 3 << 24 | 9 << 16 | 27 << 8 | 81;
using TernarySymbols = std::array<std::array<std::uint8_t, 8>, 256>;  // of each number; three are there for whole words
constexpr TernarySymbols ternary_symbols = [] {
  TernarySymbols all{};
  for (unsigned number = 0; number < 256; ++number)
    for (unsigned j = 0, rest = number; j < 5; ++j, rest /= 3) all[number][j] = static_cast<std::uint8_t>(rest % 3);
  return all;
}();

void pack_ternary(const std::uint8_t* HWY_RESTRICT symbols, std::size_t count, std::uint8_t* HWY_RESTRICT packed) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 5, ++packed)
    *packed = static_cast<std::uint8_t>(load_word(symbols + i) * powers_of_three >> 32);
  for (; i < count; ++packed) {
    const std::size_t size = std::min<std::size_t>(5, count - i);
    std::uint64_t word = 0;
    std::memcpy(&word, symbols + i, size);
    *packed = static_cast<std::uint8_t>(word * powers_of_three >> 32);
    i += size;
  }
}
void unpack_ternary(const std::uint8_t* HWY_RESTRICT packed, std::size_t count, std::uint8_t* HWY_RESTRICT symbols) {
  std::size_t i = 0;
  for (; i + 8 <= count; i += 5, ++packed) std::memcpy(symbols + i, ternary_symbols[*packed].data(), 8);
  for (; i < count; ++packed) {
    const std::size_t size = std::min<std::size_t>(5, count - i);
    std::memcpy(symbols + i, ternary_symbols[*packed].data(), size);
    i += size;
  }
}

void pack_loop(unsigned levels, const std::uint8_t* symbols, std::size_t count, std::uint8_t* packed) {
  if (levels <= 2) return pack_bits<1>(symbols, count, packed);
  if (levels == 3) return pack_ternary(symbols, count, packed);
  if (levels == 4) return pack_bits<2>(symbols, count, packed);
  if (levels <= 8) return pack_bits<3>(symbols, count, packed);
  if (levels <= 16) return pack_halves(symbols, count, packed);
  if (count > 0) std::memcpy(packed, symbols, count);
}
void unpack_loop(unsigned levels, const std::uint8_t* packed, std::size_t count, std::uint8_t* symbols) {
  if (levels <= 2) return unpack_bits<1>(packed, count, symbols);
  if (levels == 3) return unpack_ternary(packed, count, symbols);
  if (levels == 4) return unpack_bits<2>(packed, count, symbols);
  if (levels <= 8) return unpack_bits<3>(packed, count, symbols);
  if (levels <= 16) return unpack_halves(packed, count, symbols);
  if (count > 0) std::memcpy(symbols, packed, count);
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(pack_loop);
HWY_EXPORT(unpack_loop);

std::size_t packed_bytes(unsigned levels, std::size_t count) {
  if (levels == 3) return (count + 4) / 5;
  const std::size_t bits = levels <= 2 ? 1 : levels <= 4 ? 2 : levels <= 8 ? 3 : levels <= 16 ? 4 : 8;
  return (count / 8) * bits + (count % 8 * bits + 7) / 8;
}
void pack(unsigned levels, const std::uint8_t* symbols, std::size_t count, void* packed) {
  HWY_DYNAMIC_DISPATCH(pack_loop)(levels, symbols, count, static_cast<std::uint8_t*>(packed));
}
void unpack(unsigned levels, const void* packed, std::size_t count, std::uint8_t* symbols) {
  HWY_DYNAMIC_DISPATCH(unpack_loop)(levels, static_cast<const std::uint8_t*>(packed), count, symbols);
}

}  // namespace ranvier::kernel
#endif
