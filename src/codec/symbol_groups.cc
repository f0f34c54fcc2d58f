#include "codec/symbol_groups.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernel/symbols.h"

namespace ranvier {
namespace {

constexpr std::size_t most_symbols = 8;
using Digits = std::array<std::uint8_t, most_symbols>;

template <std::size_t size>
std::uint8_t number_of(const std::uint8_t* symbols, Alphabet alphabet) {
  unsigned number = 0;
  for (std::size_t i = size; i-- > 0;) number = number * alphabet.size + symbols[i] - alphabet.least;
  return static_cast<std::uint8_t>(number);
}

template <std::size_t size>
void group_by(std::span<const std::uint8_t> symbols, Alphabet alphabet, std::span<std::uint8_t> groups) {
  const std::size_t whole = symbols.size() / size;
  for (std::size_t i = 0; i < whole; ++i) groups[i] = number_of<size>(symbols.data() + i * size, alphabet);
  if (whole < groups.size()) {
    Digits last;
    last.fill(alphabet.least);
    std::ranges::copy(symbols.subspan(whole * size), last.begin());
    groups[whole] = number_of<size>(last.data(), alphabet);
  }
}

template <std::size_t size>
void ungroup_by(std::span<const std::uint8_t> groups, const std::array<Digits, 256>& digits,
                std::span<std::uint8_t> symbols) {
  // Eight bytes at a time, of which the next group overwrites what is not its predecessor's.
  std::size_t i = 0;
  for (; i < groups.size() && i * size + most_symbols <= symbols.size(); ++i)
    std::memcpy(symbols.data() + i * size, digits[groups[i]].data(), most_symbols);
  for (; i < groups.size(); ++i)
    std::memcpy(symbols.data() + i * size, digits[groups[i]].data(), std::min(size, symbols.size() - i * size));
}

}  // namespace

Alphabet alphabet_of(std::span<const std::uint8_t> symbols) {
  const auto [least, most] = kernel::extremes_of(symbols.data(), symbols.size());
  return {least, 1U + most - least};
}

std::size_t group_size(unsigned alphabet) {
  std::size_t size = 1;
  for (unsigned number = alphabet; number * alphabet <= 256; number *= alphabet) ++size;
  return size;
}

void group_symbols(std::span<const std::uint8_t> symbols, Alphabet alphabet, std::span<std::uint8_t> groups) {
  switch (group_size(alphabet.size)) {
    case 2:
      return group_by<2>(symbols, alphabet, groups);
    case 3:
      return group_by<3>(symbols, alphabet, groups);
    case 4:
      return group_by<4>(symbols, alphabet, groups);
    case 5:
      return group_by<5>(symbols, alphabet, groups);
    default:
      return group_by<8>(symbols, alphabet, groups);
  }
}

bool ungroup_symbols(std::span<const std::uint8_t> groups, Alphabet alphabet, std::span<std::uint8_t> symbols) {
  const std::size_t size = group_size(alphabet.size);
  std::array<Digits, 256> digits{};
  std::array<bool, 256> valid{};
  for (unsigned number = 0; number < digits.size(); ++number) {
    unsigned rest = number;
    digits[number].fill(alphabet.least);
    for (std::size_t i = 0; i < size; ++i, rest /= alphabet.size)
      digits[number][i] = static_cast<std::uint8_t>(alphabet.least + rest % alphabet.size);
    valid[number] = rest == 0;
  }
  bool all_valid = true;
  for (const std::uint8_t group : groups) all_valid &= valid[group];
  if (!all_valid) return false;
  const std::size_t used = symbols.size() - (groups.size() - 1) * size;
  const Digits& last = digits[groups.back()];
  const auto is_filling = [&](std::uint8_t symbol) { return symbol == alphabet.least; };
  if (!std::all_of(last.begin() + static_cast<std::ptrdiff_t>(used), last.end(), is_filling)) return false;
  switch (size) {
    case 2:
      ungroup_by<2>(groups, digits, symbols);
      break;
    case 3:
      ungroup_by<3>(groups, digits, symbols);
      break;
    case 4:
      ungroup_by<4>(groups, digits, symbols);
      break;
    case 5:
      ungroup_by<5>(groups, digits, symbols);
      break;
    default:
      ungroup_by<8>(groups, digits, symbols);
  }
  return true;
}

}  // namespace ranvier
