#include "codec/histogram.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernel/symbols.h"

namespace ranvier {
namespace {

// Counts from the beginning, for as long as no symbol is beyond the small ones, and takes off what it has counted.
Histogram count_small(std::span<const std::uint8_t>& symbols) {
  constexpr std::size_t in_cache = 8192;
  Histogram sum{};
  std::array<std::uint32_t, kernel::small_symbols> counts;
  while (!symbols.empty()) {
    const auto piece = symbols.first(std::min(in_cache, symbols.size()));
    if (kernel::count_small(piece.data(), piece.size(), counts) < piece.size()) break;
    for (std::size_t symbol = 0; symbol < counts.size(); ++symbol) sum[symbol] += counts[symbol];
    symbols = symbols.subspan(piece.size());
  }
  return sum;
}

// Written out: in a loop, which -O2 leaves one, it takes half as long again.
template <std::size_t... byte>
void count_each(std::uint64_t bytes, std::array<Histogram, 8>& part, std::index_sequence<byte...>) {
  (++part[byte][(bytes >> (8 * byte)) & 0xFF], ...);
}

}  // namespace

Histogram histogram_of(std::span<const std::uint8_t> symbols) {
  Histogram sum = count_small(symbols);
  if (symbols.empty()) return sum;
  // Neighbours count in tables of their own: equal ones would otherwise wait for each other's store.
  std::array<Histogram, 8> part{};
  std::size_t i = 0;
  for (; i + 8 <= symbols.size(); i += 8) {
    std::uint64_t eight = 0;
    std::memcpy(&eight, symbols.data() + i, 8);
    count_each(eight, part, std::make_index_sequence<8>());
  }
  for (; i < symbols.size(); ++i) ++part[0][symbols[i]];

  for (const Histogram& each : part)
    for (std::size_t symbol = 0; symbol < sum.size(); ++symbol) sum[symbol] += each[symbol];
  return sum;
}

double entropy_bits(const Histogram& histogram) {
  double total = 0, weighted = 0;
  for (const std::uint32_t count : histogram)
    if (count > 0) {
      total += count;
      weighted += count * std::log2(static_cast<double>(count));
    }
  return total > 0 ? total * std::log2(total) - weighted : 0;
}

}  // namespace ranvier
