// The inner loop of rANS decoding over interleaved states.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ranvier::kernel {

inline constexpr std::size_t rans_lanes = 32;
// States live in [2^16, 2^32) and give or take words of 16 bits.
inline constexpr std::uint32_t rans_floor = 1U << 16;

// What stands behind each slot of [0, 2^bits). Up to 12 bits, all of it fits one 32-bit word and one look-up; above,
// the table of slots would leave the first cache, so a slot gives its symbol and the symbol the rest.
struct RansTable {
  static constexpr int most_packed_bits = 12;
  static constexpr int most_bits = 15;

  int bits = 0;
  std::array<std::uint32_t, 1 << most_packed_bits> packed;  // frequency << 20 | (slot - start) << 8 | symbol
  std::array<std::uint8_t, (1 << most_bits) + 3> symbol;    // a gather reads four bytes
  std::array<std::uint32_t, 256> share;                     // frequency << 16 | start
};

// Decodes groups of rans_lanes symbols while at least rans_lanes words lie between `begin` and `words`, which moves
// down as words are taken. At least 2 * rans_lanes bytes behind `words` are readable. Returns the groups done, which
// may be fewer, even none: what is left is the caller's, symbol by symbol.
std::size_t rans_decode_groups(const RansTable& table, const std::byte* begin, const std::byte*& words,
                               std::uint32_t* states, std::uint8_t* out, std::size_t groups);

}  // namespace ranvier::kernel
