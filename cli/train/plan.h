// Training by a plan: what `ranvier plan` chose becomes settings, and its prediction is compared with what happened.
#pragma once

#include <chrono>
#include <string>

#include "ranvier/plan_file.h"
#include "train/options.h"

namespace ranvier::train {

// Gives the options of `app` that nobody has set, be it by a flag, a variable or --config, what the plan chose.
void apply_plan(CLI::App& app, const Plan& plan, Options& options);
// Throws Error{usage} for a plan of another number of ranks.
void check_plan(const Options& options, Rank world);

// Which rank the process is that was started as `place`.
Rank rank_at(const Plan& plan, Rank place);
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

// What takes its place where steps do not take what it predicted, and `current` is followed: see planning::replan.
trainer::PlanChange plan_again(const Plan& plan, const trainer::PlanChange& current, const trainer::WrongPlan& wrong,
                               std::chrono::milliseconds limit);

}  // namespace ranvier::train
