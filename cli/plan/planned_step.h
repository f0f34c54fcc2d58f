// What a plan expects of a step, by its policy and its workers, each of which is a replica of the model: as many as
// ranks, where none holds a part of it only.
#pragma once

#include "ranvier/plan_file.h"
#include "ranvier/plan_judge.h"

namespace ranvier::planning {

// Gradients.
bool averages_every_step(const Plan& plan);
// One step is as good as the mean.
bool has_equal_steps(const Plan& plan);
// How many times as long as equal ones its workers compute, in the mean.
double mean_slowness(const UnequalWorkers&, Rank replicas);
// For averages and for whoever is late, of the mean step and over the workers.
double waiting_ns(const Plan& plan, Rank replicas);
StepSeconds expected(const Plan& plan, Rank replicas);
// The same plan, of which this is expected.
Plan expecting(Plan plan, const StepSeconds& seconds, Rank replicas);

}  // namespace ranvier::planning
