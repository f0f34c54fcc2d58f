// What one collective of a group asks of a network's dimensions.
#pragma once

#include "ranvier/design.h"
#include "ranvier/workload.h"

namespace ranvier::plan {

struct CollectiveCost {
  TrafficTerm term = {};  // no loads where the group is of one
  double latency_ns = 0;  // of its messages, which bandwidth does not shorten
};
CollectiveCost collective_cost(const Communication&, const GroupSizes&, const NetworkShape&, const StepOptions&);

}  // namespace ranvier::plan
