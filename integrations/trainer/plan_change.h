// What training does instead of a plan that turned out wrong: rank 0 says it, and all ranks do the same from then on.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "integrations/trainer/step_times.h"
#include "ranvier/communicator.h"
#include "ranvier/tuning.h"

namespace ranvier::trainer {

struct PlanChange {
  TuningTable tuning = {};       // what "auto" follows from now on; none: the model of the links
  std::string compress = {};     // spec of an Exchange; empty: stays
  std::size_t bucket_bytes = 0;  // 0: stays
  StepSeconds expected = {};     // zeros: nothing is predicted, so that it is not judged again
  std::string reason = {};       // what changed and why, a sentence
};

// Why a plan is changed.
struct WrongPlan {
  StepSeconds planned = {};
  StepSeconds measured = {};
  double gradient_bytes = 0;  // of the model that is trained
};

// Asked on rank 0 only, what to do by what was measured. `current`: what is followed now, the plan or its last change.
using Replan = std::function<PlanChange(const PlanChange& current, const WrongPlan&)>;

// All ranks call, with equal numbers; all get what rank 0's `replan` says. Without one, or where it fails, a plan whose
// steps take longer loses its table, and the reason says why; one whose steps take less stays as it is, with no reason
// and with what was measured as what is expected. Others wait for rank 0 for a quarter of an hour, whatever the timeout
// of their collectives.
PlanChange agree_on_change(Communicator&, const Replan& replan, const PlanChange& current, const WrongPlan&);

}  // namespace ranvier::trainer
