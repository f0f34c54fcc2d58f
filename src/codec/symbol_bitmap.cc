#include "codec/symbol_bitmap.h"

#include <algorithm>

#include "codec/histogram.h"
#include "kernel/symbols.h"

namespace ranvier {
namespace {

// In pieces from all over the block. Entropies of so few bytes come out too small by 255 / (2 ln 2) bits, at most 1 %
// of what they are here.
constexpr std::size_t pieces = 16, piece_symbols = 2048;
constexpr double least_share = 0.25;
constexpr double clearly = 0.97;
constexpr double bits_of_a_table = 1024;  // one for the bytes of the bitmap comes on top

// What take_marked() may write behind the last of the others.
constexpr std::size_t slack = 8;

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

std::vector<std::uint8_t> bits_of(std::span<const std::uint8_t> symbols, std::uint8_t frequent) {
  std::vector<std::uint8_t> bits((symbols.size() + 7) / 8);
  const std::size_t groups = symbols.size() / 8;
  kernel::mark_others(symbols.data(), groups, frequent, bits.data());
  for (std::size_t at = 8 * groups; at < symbols.size(); ++at)
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
  const double table = bits_of_a_table * static_cast<double>(sample.size()) / static_cast<double>(symbols.size());
  const double apart = entropy_bits(histogram) + entropy_bits(histogram_of(bits_of(sample, frequent))) + table;
  return apart < clearly * together ? std::optional(frequent) : std::nullopt;
}

SymbolBitmap split(std::span<const std::uint8_t> symbols, std::uint8_t frequent) {
  SymbolBitmap parts{.bits = bits_of(symbols, frequent), .others = {}};
  const std::size_t count = *count_others(parts.bits, symbols.size()), groups = symbols.size() / 8;
  parts.others.resize(count + slack);
  std::uint8_t* next = kernel::take_marked(symbols.data(), parts.bits.data(), groups, parts.others.data());
  for (std::size_t at = 8 * groups; at < symbols.size(); ++at)
    if (symbols[at] != frequent) *next++ = symbols[at];
  parts.others.resize(count);
  return parts;
}

std::optional<std::size_t> count_others(std::span<const std::uint8_t> bits, std::size_t symbols) {
  if (symbols % 8 != 0 && bits.back() >> symbols % 8 != 0) return std::nullopt;
  return kernel::count_bits(bits.data(), bits.size());
}

void join(std::span<const std::uint8_t> bits, std::uint8_t frequent, std::size_t others,
          std::span<std::uint8_t> symbols) {
  // What is read next lies at or behind what is written, as long as there are others left.
  const std::uint8_t* next = symbols.data() + symbols.size() - others;
  const std::uint8_t* const end = symbols.data() + symbols.size();
  std::size_t i = 8 * kernel::put_marked(bits.data(), symbols.size() / 8, frequent, next, end, symbols.data());
  for (; next != end; ++i) {
    const bool is_other = bits[i / 8] >> i % 8 & 1;
    symbols[i] = is_other ? *next : frequent;
    next += is_other;
  }
  std::fill(symbols.begin() + static_cast<std::ptrdiff_t>(i), symbols.end(), frequent);
}

}  // namespace ranvier
