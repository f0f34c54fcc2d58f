// What the builders have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ranvier/topology.h"

namespace ranvier::topology {

// Worlds beyond it would number more links than LinkNumber holds.
inline constexpr std::int64_t largest_world = 1 << 20;

// Throws Error{usage} unless 1 <= world <= most.
void check_world(std::string_view name, std::int64_t world, std::int64_t most = largest_world);

// Both directions of a cable, the one from `a` first.
inline void add_cable(std::vector<Link>& links, Vertex a, Vertex b, LinkSpeed speed, std::int32_t dimension = 0) {
  links.push_back({.from = a, .to = b, .speed = speed, .dimension = dimension});
  links.push_back({.from = b, .to = a, .speed = speed, .dimension = dimension});
}

}  // namespace ranvier::topology
