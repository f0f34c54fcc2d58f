// The star: one switch in the middle, so that only the ranks' own links are ever shared.
#include "topology/world.h"

namespace ranvier::topology {

Topology star(Rank world, LinkSpeed speed) {
  check_world("star", world);
  Topology star{.name = "star", .world = world, .switches = 1, .links = {}, .path = {}};
  for (Rank rank = 0; rank < world; ++rank) add_cable(star.links, rank, world, speed);
  star.path = [](Rank from, Rank to) {
    if (from == to) return Path{};
    return Path{static_cast<LinkNumber>(2 * from), static_cast<LinkNumber>(2 * to + 1)};
  };
  return star;
}

}  // namespace ranvier::topology
