// Full connection: a cable for every pair, so that no two transfers of different pairs ever meet.
#include "topology/world.h"

namespace ranvier::topology {

Topology fully_connected(Rank world, LinkSpeed speed) {
  check_world("fully_connected", world, 4096);  // some 16 million links
  Topology pairs{
      .name = "fully_connected", .world = world, .switches = 0, .ranks_forward = true, .links = {}, .path = {}};
  for (Rank from = 0; from < world; ++from)
    for (Rank to = 0; to < world; ++to)
      if (to != from) pairs.links.push_back({.from = from, .to = to, .speed = speed});
  pairs.path = [world](Rank from, Rank to) {
    if (from == to) return Path{};
    return Path{static_cast<LinkNumber>(from * (world - 1) + to - (to > from ? 1 : 0))};
  };
  return pairs;
}

}  // namespace ranvier::topology
