// Networks that have lost cables, and the ways around them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>

#include "ranvier/error.h"
#include "ranvier/topology.h"

namespace ranvier {
namespace {

constexpr LinkNumber cut = std::numeric_limits<LinkNumber>::max();

bool joins(const Link& link, const Cable& cable) {
  return (link.from == cable.one && link.to == cable.other) || (link.from == cable.other && link.to == cable.one);
}

std::string name_of(const Topology& topology, const Cable& cable) {
  return fmt::format("{} - {}", vertex_name(topology, cable.one), vertex_name(topology, cable.other));
}

[[noreturn]] void refuse(const Topology& topology, const Cable& cable) {
  std::vector<std::string> ends;
  for (const Link& link : topology.links)
    if (link.from == cable.one) ends.push_back(vertex_name(topology, link.to));
  const bool exists = cable.one >= 0 && cable.one < topology.world + topology.switches;
  const std::string remedy = exists && !ends.empty() ? fmt::format("its cables go to {}", fmt::join(ends, ", "))
                                                     : fmt::format("it has ranks 0 to {} and {} switches",
                                                                   topology.world - 1, topology.switches);
  throw Error(ErrorKind::usage, fmt::format("{} has no cable {}; {}", topology.name, name_of(topology, cable), remedy));
}

// What is left, and for each old link its new number, or `cut`.
class Remains {
 public:
  Remains(const Topology& before, const std::vector<Cable>& cables)
      : world_(before.world), ranks_forward_(before.ranks_forward), path_(before.path) {
    for (const Link& link : before.links) {
      const bool is_cut = std::ranges::any_of(cables, [&](const Cable& each) { return joins(link, each); });
      number_.push_back(is_cut ? cut : static_cast<LinkNumber>(links_.size()));
      if (!is_cut) links_.push_back(link);
    }
    from_.resize(static_cast<std::size_t>(before.world) + static_cast<std::size_t>(before.switches));
    for (LinkNumber link = 0; link < links_.size(); ++link)
      from_[static_cast<std::size_t>(links_[link].from)].push_back(link);
    for (const Cable& each : cables) names_.push_back(name_of(before, each));
  }

  const std::vector<Link>& links() const { return links_; }
  std::string names() const { return fmt::format("{}", fmt::join(names_, ", ")); }

  Path path(Rank from, Rank to) const {
    Path way = path_(from, to);
    for (LinkNumber& link : way) link = number_[link];
    return std::ranges::find(way, cut) == way.end() ? way : detour(from, to);
  }

 private:
  // Breadth first, links in their order: the shortest, and always the same.
  Path detour(Rank from, Rank to) const {
    std::vector<LinkNumber> by(from_.size(), cut);
    std::deque<Vertex> next{from};
    while (!next.empty() && by[static_cast<std::size_t>(to)] == cut) {
      const Vertex here = next.front();
      next.pop_front();
      if (here != from && here < world_ && !ranks_forward_) continue;
      for (const LinkNumber link : from_[static_cast<std::size_t>(here)]) {
        const Vertex there = links_[link].to;
        if (there == from || by[static_cast<std::size_t>(there)] != cut) continue;
        by[static_cast<std::size_t>(there)] = link;
        next.push_back(there);
      }
    }
    if (by[static_cast<std::size_t>(to)] == cut)
      throw Error(ErrorKind::usage,
                  fmt::format("rank {} has no way to rank {} without the cable {}; take an algorithm in which they do "
                              "not meet, or a network with a second way",
                              from, to, names()));
    Path way;
    for (Vertex at = to; at != from; at = links_[way.back()].from) way.push_back(by[static_cast<std::size_t>(at)]);
    std::ranges::reverse(way);
    return way;
  }

  Rank world_;
  bool ranks_forward_;
  std::function<Path(Rank, Rank)> path_;
  std::vector<LinkNumber> number_;
  std::vector<Link> links_;
  std::vector<std::vector<LinkNumber>> from_;  // by vertex
  std::vector<std::string> names_;
};

}  // namespace

Topology without_cables(const Topology& topology, const std::vector<Cable>& cables) {
  for (const Cable& each : cables)
    if (std::ranges::none_of(topology.links, [&](const Link& link) { return joins(link, each); }))
      refuse(topology, each);
  const auto remains = std::make_shared<const Remains>(topology, cables);
  Topology left = topology;
  // Not one that begins as those do that look the same from each rank.
  left.name = fmt::format("without {}: {}", remains->names(), topology.name);
  left.links = remains->links();
  left.path = [remains](Rank from, Rank to) { return remains->path(from, to); };
  return left;
}

}  // namespace ranvier
