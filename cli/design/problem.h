// Options become a problem: workloads found, placed on the network and added up.
#pragma once

#include "design/options.h"

namespace ranvier::design {

DesignProblem problem_of(const Options&);
// Solves it in the way that the options ask for.
Design solve(const Options&, DesignProblem&);

// With mixed chunk orders: those of each kind of collective and group, on these bandwidths.
struct ChunkOrders {
  Collective collective;
  GroupSizes group;
  std::vector<OrderShare> orders;
};
std::vector<ChunkOrders> chunk_orders(const Options&, const Design&);

}  // namespace ranvier::design
