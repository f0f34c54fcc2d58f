// For each set of eight neighbours, lanes or symbols, a byte with a bit for each: where its members are, and which
// member each of the eight is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ranvier::kernel {

using OfEachSet = std::array<std::array<std::uint8_t, 8>, 256>;

// The places of the members, in order, and zeros behind them.
constexpr OfEachSet make_members() {
  OfEachSet members{};
  for (unsigned set = 0; set < members.size(); ++set) {
    std::size_t rank = 0;
    for (std::uint8_t place = 0; place < 8; ++place)
      if ((set >> place & 1) != 0) members[set][rank++] = place;
  }
  return members;
}

// How many members are before each place that is one; elsewhere `absent`.
constexpr OfEachSet make_ranks(std::uint8_t absent) {
  OfEachSet ranks{};
  for (unsigned set = 0; set < ranks.size(); ++set) {
    std::uint8_t rank = 0;
    for (std::size_t place = 0; place < 8; ++place) ranks[set][place] = (set >> place & 1) != 0 ? rank++ : absent;
  }
  return ranks;
}

// Not where they are used: GCC copies a table of a function to the stack at every call.
inline constexpr std::uint8_t none = 0x80;  // of which a shuffle of bytes makes 0
inline constexpr OfEachSet members_of = make_members();
inline constexpr OfEachSet ranks_or_0 = make_ranks(0);
inline constexpr OfEachSet ranks_or_none = make_ranks(none);

}  // namespace ranvier::kernel
