// What one collective of a group asks of a network's dimensions.
#pragma once

#include "ranvier/design.h"
#include "ranvier/workload.h"

namespace ranvier::plan {

struct CollectiveCost {
  TrafficTerm term = {};  // no loads where the group is of one
  double latency_ns = 0;  // of its messages, which bandwidth does not shorten
};
// Throws Error{usage} for what the options do not go with, and where the group is of another network than the shape;
// `whose` it is then, such as "layer conv1".
CollectiveCost collective_cost(const Communication&, const GroupSizes&, const NetworkShape&, const StepOptions&,
                               std::string_view whose);

}  // namespace ranvier::plan
