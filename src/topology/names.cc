#include <fmt/format.h>

#include "ranvier/topology.h"

namespace ranvier {

std::string vertex_name(const Topology& topology, Vertex vertex) {
  if (const auto named = topology.names.find(vertex); named != topology.names.end()) return named->second;
  return vertex < topology.world ? fmt::format("rank {}", vertex) : fmt::format("switch {}", vertex - topology.world);
}

std::string link_name(const Topology& topology, LinkNumber number) {
  const Link& link = topology.links[number];
  if (link.from == link.to) return vertex_name(topology, link.from);
  return fmt::format("{} -> {}", vertex_name(topology, link.from), vertex_name(topology, link.to));
}

}  // namespace ranvier
