// The groups of one role in a divided model: which ranks they are, and their collectives all at once, as one schedule
// of the whole world. They share links, so that one of them alone would say too little.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ranvier/schedule.h"
#include "ranvier/workload.h"

namespace ranvier::plan {

Rank size_of(const Axes&);
// Those of the group that has these ranks, where the world is made of groups like it.
std::optional<Axes> axes_of(std::span<const Rank> ranks, Rank world);
// The world's numbers, divided where groups begin and end; as SimulateOptions::grid has them.
std::vector<Rank> grid_of(const Axes&, Rank world);

// Ranks are numbered along tensor groups first, then expert groups, what is left of the data groups, and the pipeline.
class Grid {
 public:
  // Throws Error{usage} where the degrees do not multiply to the world.
  Grid(const Workload&, Rank world);

  Grouping of(Role) const;
  // The last counts fastest, as SimulateOptions::grid has them. `node`: so many replicas that stand side by side may
  // have something to do with one another; 0: none.
  std::vector<Rank> dims(Rank node = 0) const {
    const Rank inner = node > 0 && data_ % node == 0 ? node : expert_;
    return {pipeline_, data_ / inner, inner, tensor_};
  }

 private:
  Rank tensor_ = 1;
  Rank expert_ = 1;
  Rank data_ = 1;  // experts included
  Rank pipeline_ = 1;
};

// A schedule of one group in each of them.
Schedule in_each(Schedule one, Rank world, const Axes&);
// Each group runs the collective by itself, its first rank the root. `algorithm` as parse_algorithm takes it; where it
// does not build the collective, direct exchange. A send goes to the member `hops` further, and from the last to the
// first, as in interleaved pipelines.
Schedule in_all_groups(Collective, Rank world, const Axes&, const std::string& algorithm, Rank hops = 1);
// Every rank sends its vector to the one `hops` further in its group.
Schedule pushes(Rank world, const Grouping&, Rank hops);

// Of each group its ranks, in the order in which they are numbered inside it. Not every rank is in one.
using RankGroups = std::vector<std::vector<Rank>>;
// The same for any groups, also of different sizes, for all_reduce and broadcast, whose roots are the first ranks. All
// ranks have buffers for it. Throws Error{usage} where sizes have no common multiple worth the name.
Schedule in_groups(Collective, Rank world, const RankGroups&, const std::string& algorithm);

}  // namespace ranvier::plan
