// What a crash leaves: an operation that does not end, and ranks that wait until they notice.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ranvier/simulate.h"
#include "ranvier/topology.h"
#include "simulate/options.h"

namespace ranvier::simulation {

struct Aftermath {
  Crash crash;
  Loss loss;
  Detection detection;
  std::vector<RankEnd> ends = {};  // of one operation, by rank
  std::string waits_in = {};       // of a step: what does not end in it
};
// Of one operation of `count` values, and of a step; `options` has a crash.
Aftermath after_crash(const Options& options, const Topology&, const Schedule&, std::size_t count);
Aftermath after_crash(const Options& options, const Topology&, const StepPrediction&);

void print(const Aftermath&);
nlohmann::json to_json(const Aftermath&);

}  // namespace ranvier::simulation
