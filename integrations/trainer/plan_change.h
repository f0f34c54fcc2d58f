// What training does instead of a plan that turned out wrong: rank 0 says it, and all ranks do the same from then on.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "ranvier/communicator.h"
#include "ranvier/tuning.h"

namespace ranvier::trainer {

// What a step was expected to take, or takes, in seconds.
struct StepSeconds {
  double step = 0;
  double waiting = 0;  // for averages, of the step
};

struct PlanChange {
  TuningTable tuning = {};       // what "auto" follows from now on; none: the model of measured links
  std::string compress = {};     // spec of an Exchange; empty: stays
  std::size_t bucket_bytes = 0;  // 0: stays
  StepSeconds expected = {};     // zeros: nothing is predicted, so that it is not judged again
  std::string reason = {};       // what changed and why, a sentence
};

// Asked on rank 0 only, what to do by what was measured.
using Replan = std::function<PlanChange(const StepSeconds& planned, const StepSeconds& measured)>;

// All ranks call, with equal numbers; all get what rank 0's `replan` says. Without one, or where it fails: the plan's
// table is dropped, and the reason says why.
PlanChange agree_on_change(Communicator&, const Replan& replan, const StepSeconds& planned,
                           const StepSeconds& measured);

}  // namespace ranvier::trainer
