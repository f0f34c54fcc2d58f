// The groups of one role in a divided model: which ranks they are, and their collectives all at once, as one schedule
// of the whole world. They share links, so that one of them alone would say too little.
#pragma once

#include <string>

#include "ranvier/schedule.h"
#include "ranvier/workload.h"

namespace ranvier::plan {

// Ranks are numbered along tensor groups first, then expert groups, what is left of the data groups, and the pipeline:
// members of a group are `stride` apart.
struct Grouping {
  Rank size = 1;
  Rank stride = 1;
};

class Grid {
 public:
  // Throws Error{usage} where the degrees do not multiply to the world.
  Grid(const Workload&, Rank world);

  Grouping of(Role) const;
  // The last counts fastest, as SimulateOptions::grid has them.
  std::vector<Rank> dims() const { return {pipeline_, data_ / expert_, expert_, tensor_}; }

 private:
  Rank tensor_ = 1;
  Rank expert_ = 1;
  Rank data_ = 1;  // experts included
  Rank pipeline_ = 1;
};

// Each group runs the collective by itself. `algorithm` as parse_algorithm takes it; where it does not build the
// collective, direct exchange. A send goes to the next member, and from the last to the first, as in interleaved
// pipelines.
Schedule in_all_groups(Collective, Rank world, const Grouping&, const std::string& algorithm);

}  // namespace ranvier::plan
