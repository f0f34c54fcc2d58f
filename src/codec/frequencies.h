// Whole-number frequencies that add up to a power of two, as rANS wants them, near the counts of a histogram.
#pragma once

#include "codec/histogram.h"
#include "codec/number_table.h"

namespace ranvier {

struct Frequencies {
  int bits = 0;         // they add up to 2^bits
  NumberTable of = {};  // at least 1 for each symbol that occurs
};

// The frequencies of that sum under which `histogram` (at least two symbols, at most 2^bits) takes nearly the fewest
// bits.
Frequencies fit(const Histogram&, int bits);

// The bits that an ideal coder takes for symbols of `histogram` when it believes in `frequencies`.
double cost_bits(const Histogram&, const Frequencies&);

}  // namespace ranvier
