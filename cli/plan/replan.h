// Planning again while training goes on, by what was measured in place of what was expected: for `ranvier plan
// --again`, which PyTorch asks, and for `ranvier train --plan`.
#pragma once

#include <cstddef>
#include <string>

#include "plan/budget.h"
#include "ranvier/plan_file.h"
#include "ranvier/plan_judge.h"

namespace ranvier::planning {

struct Measured {
  StepSeconds step;              // by the plan as it is followed
  double gradient_bytes = 0;     // of the model that is trained; 0: as the workload has it
  std::size_t bucket_bytes = 0;  // in which gradients go, whatever is planned; 0: as is planned
  bool keeps_codec = false;      // what it holds must not be lost
};

struct Replanned {
  Plan plan;           // from now on; its first reason is what follows
  std::string reason;  // what was measured, and what is done about it, a sentence
};

// `followed`: with what it expects. Its workload computes as fast as was measured, and its network is as much slower
// (or faster) as makes the simulator wait as long as training did; algorithm, bucket and codec are then searched again,
// until the limit is over, for all ranks wait meanwhile: then the best that is known by then is taken, or `followed`
// stays, and the reason says so; it stays as well where no speed of the network explains how long was waited.
// Transport, placement and policy stay, and by a policy that does not average gradients in every step codec and bucket
// too. Throws Error where the plan's files are gone or are of another model, and where the limit is too short for
// anything.
Replanned replan(const Plan& followed, const Measured&, const SearchLimit&);

}  // namespace ranvier::planning
