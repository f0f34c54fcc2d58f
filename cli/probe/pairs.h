// Who measures with whom.
#pragma once

#include <vector>

#include "ranvier/types.h"

namespace ranvier::probe {

// The partner of `rank` in each round: every pair meets once, in world-1 rounds (world, if that is odd) of disjoint
// pairs; -1 in a round in which the rank has none. The circle method, which tournaments use: T. P. Kirkman, 1850.
std::vector<Rank> partners(Rank rank, Rank world);

}  // namespace ranvier::probe
