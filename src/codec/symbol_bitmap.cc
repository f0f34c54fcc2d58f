#include "codec/symbol_bitmap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "codec/histogram.h"

namespace ranvier {
namespace {

// In pieces from all over the block. Entropies of so few bytes come out too small by 255 / (2 ln 2) bits, at most 1 %
// of what they are here.
constexpr std::size_t pieces = 16, piece_symbols = 2048;
constexpr double least_share = 0.25;
constexpr double clearly = 0.97;
constexpr double table_bits = 1024;  // one for the bytes of the bitmap comes on top

constexpr std::uint64_t all_bytes = 0x0101010101010101;  // times a byte: eight of them

std::vector<std::uint8_t> sample_of(std::span<const std::uint8_t> symbols) {
  if (symbols.size() <= pieces * piece_symbols) return {symbols.begin(), symbols.end()};
  std::vector<std::uint8_t> sample;
  sample.reserve(pieces * piece_symbols);
  for (std::size_t i = 0; i < pieces; ++i) {
    const auto piece = symbols.subspan(symbols.size() / pieces * i, piece_symbols);
    sample.insert(sample.end(), piece.begin(), piece.end());
  }
  return sample;
}

// Bit k: whether byte k of eight symbols is another one.
std::uint8_t others_of(std::uint64_t eight, std::uint64_t eight_times) {
  constexpr std::uint64_t low_bits = 0x7F7F7F7F7F7F7F7F, gather = 0x0102040810204080;
  const std::uint64_t different = eight ^ eight_times;
  const std::uint64_t is_not = (((different & low_bits) + low_bits) | different) >> 7 & all_bytes;
  return static_cast<std::uint8_t>(is_not * gather >> 56);
}

std::vector<std::uint8_t> bits_of(std::span<const std::uint8_t> symbols, std::uint8_t frequent) {
  std::vector<std::uint8_t> bits((symbols.size() + 7) / 8);
  const std::uint64_t eight_times = all_bytes * frequent;
  std::size_t at = 0;
  for (; at + 8 <= symbols.size(); at += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, symbols.data() + at, 8);
    bits[at / 8] = others_of(eight, eight_times);
  }
  for (; at < symbols.size(); ++at)
    bits[at / 8] = static_cast<std::uint8_t>(bits[at / 8] | (symbols[at] != frequent) << at % 8);
  return bits;
}

}  // namespace

std::optional<std::uint8_t> worth_a_bitmap(std::span<const std::uint8_t> symbols) {
  const auto sample = sample_of(symbols);
  Histogram histogram = histogram_of(sample);
  const auto most = std::ranges::max_element(histogram);
  const std::size_t others = sample.size() - *most;
  if (static_cast<double>(*most) < least_share * static_cast<double>(sample.size()) || others == 0) return std::nullopt;
  const auto frequent = static_cast<std::uint8_t>(most - histogram.begin());
  const double together = entropy_bits(histogram);
  *most = 0;
  const double table = table_bits * static_cast<double>(sample.size()) / static_cast<double>(symbols.size());
  const double apart = entropy_bits(histogram) + entropy_bits(histogram_of(bits_of(sample, frequent))) + table;
  return apart < clearly * together ? std::optional(frequent) : std::nullopt;
}

SymbolBitmap split(std::span<const std::uint8_t> symbols, std::uint8_t frequent) {
  SymbolBitmap parts{.bits = bits_of(symbols, frequent), .others = {}};
  const std::size_t count = *count_others(parts.bits, symbols.size());
  parts.others.resize(count);
  std::uint8_t* next = parts.others.data();
  for (std::size_t byte = 0; byte < parts.bits.size(); ++byte)
    for (unsigned left = parts.bits[byte]; left != 0; left &= left - 1)
      *next++ = symbols[byte * 8 + static_cast<std::size_t>(std::countr_zero(left))];
  return parts;
}

std::optional<std::size_t> count_others(std::span<const std::uint8_t> bits, std::size_t symbols) {
  if (symbols % 8 != 0 && bits.back() >> symbols % 8 != 0) return std::nullopt;
  std::size_t count = 0;
  for (const std::uint8_t byte : bits) count += static_cast<std::size_t>(std::popcount(byte));
  return count;
}

void join(std::span<const std::uint8_t> bits, std::uint8_t frequent, std::size_t others,
          std::span<std::uint8_t> symbols) {
  // What is read next lies at or behind what is written, as long as there are others left.
  const std::uint8_t* next = symbols.data() + symbols.size() - others;
  const std::uint8_t* const end = symbols.data() + symbols.size();
  const std::uint64_t eight_times = all_bytes * frequent;
  std::size_t i = 0;
  for (; end - next >= 8 && symbols.size() - i >= 8; i += 8) {
    std::array<std::uint8_t, 8> coming;  // before they are overwritten
    std::memcpy(coming.data(), next, coming.size());
    std::memcpy(symbols.data() + i, &eight_times, sizeof eight_times);
    std::size_t taken = 0;
    for (unsigned left = bits[i / 8]; left != 0; left &= left - 1)
      symbols[i + static_cast<std::size_t>(std::countr_zero(left))] = coming[taken++];
    next += taken;
  }
  for (; next != end; ++i) {
    const bool is_other = bits[i / 8] >> i % 8 & 1;
    symbols[i] = is_other ? *next : frequent;
    next += is_other;
  }
  std::fill(symbols.begin() + static_cast<std::ptrdiff_t>(i), symbols.end(), frequent);
}

}  // namespace ranvier
