// Several symbols of a small alphabet as one of a larger one: g symbols from `least` on, of n kinds, become one number
// below n^g <= 256, the first symbol its last digit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier {

inline constexpr unsigned most_grouped_symbols = 16;

struct Alphabet {
  std::uint8_t least;
  unsigned size;  // `least` + size <= 256
};
Alphabet alphabet_of(std::span<const std::uint8_t> symbols);

// The most symbols of an alphabet of so many (2 to 16) that one byte holds: 8 for bits, 5 for ternary, 2 for 16.
std::size_t group_size(unsigned alphabet);

// ceil(symbols.size() / group_size) bytes; what is missing to a whole group counts as `least`.
void group_symbols(std::span<const std::uint8_t> symbols, Alphabet, std::span<std::uint8_t> groups);
// False when a number is none of a group, or what fills the last one is not `least`.
bool ungroup_symbols(std::span<const std::uint8_t> groups, Alphabet, std::span<std::uint8_t> symbols);

}  // namespace ranvier
