// Full connection: a cable for every pair, so that no two transfers of different pairs ever meet.
#include <fmt/format.h>

#include "ranvier/error.h"
#include "topology/world.h"

namespace ranvier::topology {

Topology fully_connected(Rank world, LinkSpeed speed) {
  constexpr Rank most = 4096;  // some 16 million links
  if (world > most)
    throw Error(ErrorKind::usage,
                fmt::format("topology fully_connected was asked for {} ranks, with a cable for each of {} pairs; it "
                            "can have 1 to {}; take star, where each rank has one cable{}",
                            world, std::int64_t{world} * (world - 1) / 2, most,
                            world % 8 == 0 ? fmt::format(", or FC(8)_SW({})", world / 8) : ""));
  check_world("fully_connected", world);
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
