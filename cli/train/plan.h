// Training by a plan: what `ranvier plan` chose becomes settings, and its prediction is compared with what happened.
#pragma once

#include <string>

#include "ranvier/plan_file.h"
#include "train/options.h"

namespace ranvier::train {

// Gives the options of `app` that neither a flag nor a variable has set what the plan chose; call it after parsing.
void apply_plan(CLI::App& app, const Plan& plan, Options& options);
// Throws Error{usage} for a plan of another number of ranks.
void check_plan(const Options& options, Rank world);

// Which rank the process is that was started as `place`.
Rank rank_at(const Plan& plan, Rank place);
// Gradients.
bool averages_every_step(const Plan& plan);
// One step is as good as the mean.
bool has_equal_steps(const Plan& plan);
// How many times as long as equal ones its workers compute, in the mean.
double mean_slowness(const Plan& plan);
// For averages and for whoever is late, of the mean step and over the workers.
double waiting_ns(const Plan& plan);
// What "auto" follows. A plan for "auto" is for whichever transport the ranks meet over.
TuningTable table_of(const Plan& plan);

struct PlanComparison {
  double predicted_ns = 0;
  double measured_ns = 0;
  double error = 0;  // measured / predicted - 1
  // Empty while the error is tolerable; else what was other than planned, and what to run again.
  std::string advice = {};
};
PlanComparison compare(const Plan& plan, const trainer::TrainResult& result);

}  // namespace ranvier::train
