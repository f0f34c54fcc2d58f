// What a plan expects of a step, by its policy and its workers.
#pragma once

#include "ranvier/plan_file.h"
#include "ranvier/plan_judge.h"

namespace ranvier::planning {

// Gradients.
bool averages_every_step(const Plan& plan);
// One step is as good as the mean.
bool has_equal_steps(const Plan& plan);
// How many times as long as equal ones its workers compute, in the mean.
double mean_slowness(const Plan& plan);
// For averages and for whoever is late, of the mean step and over the workers.
double waiting_ns(const Plan& plan);
StepSeconds expected(const Plan& plan);
// The same plan, of which this is expected.
Plan expecting(Plan plan, const StepSeconds& seconds);

}  // namespace ranvier::planning
