// The lengths of an optimal prefix code whose words have at most so many bits.
#pragma once

#include "codec/histogram.h"
#include "codec/number_table.h"

namespace ranvier {

// 0 for symbols that do not occur. At least two occur, at most 2^most_bits. The lengths fill the code space exactly:
// the sum of 2^-length over all symbols is 1.
NumberTable code_lengths(const Histogram&, int most_bits);

}  // namespace ranvier
