#include "codec/frequencies.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ranvier {
namespace {

// Symbols whose share is below one slot get one slot; the others share what is left, which may make more of them rare.
// Returns slots per count for the others.
double set_aside_rare(const Histogram& histogram, double slots, NumberTable& of) {
  double counts = std::accumulate(histogram.begin(), histogram.end(), 0.0);
  for (bool again = true; again;) {
    again = false;
    const double scale = slots / counts;
    for (std::size_t symbol = 0; symbol < of.size(); ++symbol)
      if (histogram[symbol] > 0 && of[symbol] == 0 && histogram[symbol] * scale <= 1) {
        of[symbol] = 1;
        slots -= 1;
        counts -= histogram[symbol];
        again = true;
      }
  }
  return counts > 0 ? slots / counts : 0;
}

// Moves the sum to `wanted` by one slot at a time, always where it costs the least or gains the most: a slot more or
// less of f changes count * log2(f) by about count / (f ± 1/2).
void settle(const Histogram& histogram, int wanted, NumberTable& of) {
  int missing = wanted - std::accumulate(of.begin(), of.end(), 0);
  for (; missing != 0; missing += missing > 0 ? -1 : 1) {
    std::size_t chosen = 0;
    double best = -1;
    for (std::size_t symbol = 0; symbol < of.size(); ++symbol) {
      if (histogram[symbol] == 0 || (missing < 0 && of[symbol] == 1)) continue;
      const double gain = missing > 0 ? histogram[symbol] / (of[symbol] + 0.5) : (of[symbol] - 0.5) / histogram[symbol];
      if (gain > best) {
        best = gain;
        chosen = symbol;
      }
    }
    of[chosen] = static_cast<std::uint16_t>(of[chosen] + (missing > 0 ? 1 : -1));
  }
}

}  // namespace

Frequencies fit(const Histogram& histogram, int bits) {
  Frequencies frequencies{.bits = bits};
  const int sum = 1 << bits;
  const double scale = set_aside_rare(histogram, sum, frequencies.of);
  for (std::size_t symbol = 0; symbol < histogram.size(); ++symbol)
    if (histogram[symbol] > 0 && frequencies.of[symbol] == 0)
      frequencies.of[symbol] = static_cast<std::uint16_t>(std::max(1L, std::lround(histogram[symbol] * scale)));
  settle(histogram, sum, frequencies.of);
  return frequencies;
}

double cost_bits(const Histogram& histogram, const Frequencies& frequencies) {
  double bits = 0;
  for (std::size_t symbol = 0; symbol < histogram.size(); ++symbol)
    if (histogram[symbol] > 0)
      bits += histogram[symbol] * (frequencies.bits - std::log2(static_cast<double>(frequencies.of[symbol])));
  return bits;
}

}  // namespace ranvier
