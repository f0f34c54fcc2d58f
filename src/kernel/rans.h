// The inner loops of rANS over interleaved states, for many symbols. Both leave to the caller, symbol by symbol, what
// they do not do: ends, and everything on machines without gathers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ranvier::kernel {

// The numbers of states that there are vector loops for. Four vectors of AVX-512 hide each other's latency, two nearly.
inline constexpr std::size_t fewer_lanes = 32, most_lanes = 64;
// States live in [2^16, 2^32) and give or take words of 16 bits.
inline constexpr std::uint32_t rans_floor = 1U << 16;

// What each symbol does to a state.
struct RansSteps {
  struct Step {
    std::uint32_t share;       // frequency << 16 | start
    std::uint32_t reciprocal;  // floor(2^32 / frequency), or 2^32 - 1 for 1
  };
  int bits = 0;
  std::array<Step, 256> of;
};

// Encodes groups of `lanes` symbols, the last group first, while at least `lanes` words fit between `words`, which
// moves up as words are written, and `end`. Returns the groups that are left, at the front.
std::size_t rans_encode_groups(std::size_t lanes, const RansSteps& steps, const std::uint8_t* symbols,
                               std::size_t groups, std::uint32_t* states, std::byte*& words, const std::byte* end);

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

// Decodes groups of `lanes` symbols while at least `lanes` words lie between `begin` and `words`, which moves down as
// words are taken. At least 2 * lanes bytes behind `words` are readable. Returns the groups done.
std::size_t rans_decode_groups(std::size_t lanes, const RansTable& table, const std::byte* begin,
                               const std::byte*& words, std::uint32_t* states, std::uint8_t* out, std::size_t groups);

}  // namespace ranvier::kernel
