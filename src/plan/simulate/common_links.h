// Which links of several runs on one network are the same ones. A run that is folded has one for each kind of link,
// which stands for all of that kind; other runs have others, or all of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/simulate.h"

namespace ranvier::plan {

class CommonLinks {
 public:
  // Which outlives it.
  explicit CommonLinks(const Topology& topology) : topology_(topology) {}

  struct Link {
    std::string_view from;
    std::string_view to;
    std::int32_t dimension = 0;
    std::vector<double> busy;  // by run: SimulatedLink::utilisation
  };
  // All of the network's; of those that no run tells apart only the first. They live as long as the runs and this do.
  std::vector<Link> of(const std::vector<const SimulatedRun*>& runs);

 private:
  using Fold = std::optional<Shifts>;
  struct Kind {
    std::vector<std::uint32_t> places;  // by fold: where runs that are folded so have it among their links
    std::string from;
    std::string to;
    std::int32_t dimension;
  };
  const std::vector<Kind>& kinds(const std::set<Fold>&);

  const Topology& topology_;
  std::map<std::set<Fold>, std::vector<Kind>> known_;
};

// Of runs that have the same links.
std::vector<CommonLinks::Link> link_by_link(const std::vector<const SimulatedRun*>& runs);

}  // namespace ranvier::plan
