// The partners of the Swing algorithms.
#pragma once

#include <cstdint>

#include "ranvier/types.h"

namespace ranvier {

// With whom `rank` of an even world speaks in round s: (1 - (-2)^(s+1)) / 3 ranks ahead if it is even, behind if it is
// odd. In each round these are pairs of an even and an odd rank, 1, 1, 3, 5, 11, 21, … apart, to one side and the other
// by turns.
Rank swing_partner(Rank world, Rank rank, std::uint32_t s);

}  // namespace ranvier
