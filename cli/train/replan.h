// Planning again while training goes on, by what was measured in place of what was expected.
#pragma once

#include <chrono>

#include "integrations/trainer/plan_change.h"
#include "ranvier/plan_file.h"

namespace ranvier::train {

// `current`: what is followed now in place of the plan's own algorithms, bucket and codec. The plan's workload computes
// as fast as was measured, and its network is as much slower (or faster) as makes the simulator wait as long as
// training did; algorithm, bucket and codec are then searched again, until `limit` is over, for all ranks wait
// meanwhile: then the best that is known by then is taken, or `current` stays, and the reason says so; it stays as well
// where no speed of the network explains how long was waited. Transport, placement and policy stay, and by a policy
// that does not average gradients in every step codec and bucket too. Throws Error where the plan's files are gone or
// are of another model, and where `limit` is too short for anything.
trainer::PlanChange replan(const Plan&, const trainer::PlanChange& current, const trainer::WrongPlan& wrong,
                           std::chrono::milliseconds limit);

}  // namespace ranvier::train
