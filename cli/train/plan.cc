#include "train/plan.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>

#include "plan/planned_step.h"
#include "plan/replan.h"
#include "ranvier/error.h"
#include "ranvier/synchronizer.h"

namespace ranvier::train {

using planning::has_equal_steps;
using planning::waiting_ns;

TuningTable table_of(const Plan& plan) {
  std::vector<TuningRow> rows;
  const std::vector<std::string> may_be{"shm", "tcp", "shm+tcp"};
  for (const std::string& transport : plan.transport == "auto" ? may_be : std::vector{plan.transport}) {
    for (const auto& row : plan.all_reduce)
      rows.push_back({.collective = Collective::all_reduce,
                      .transport = transport,
                      .ranks = plan.ranks,
                      .up_to = row.up_to,
                      .algorithm = row.algorithm});
  }
  TuningTable table;
  table.replace(rows);
  return table;
}

void apply_plan(CLI::App& app, const Plan& plan, Options& options) {
  const auto is_given = [&](const char* flag) { return app.get_option(flag)->count() > 0; };
  // Transport and policy are not among what is planned again: to say what the plan says changes nothing.
  const auto differs = [&](const char* flag, const std::string& planned) {
    return is_given(flag) && app.get_option(flag)->as<std::string>() != planned;
  };
  const bool chooses = !is_given("--algorithm") && !is_given("--tuning");
  const bool obeyed = chooses && !is_given("--compress") && !is_given("--bucket") && !differs("--sync", plan.sync) &&
                      !differs("--transport", plan.transport);
  cli::set_unless_given(app, "--transport", plan.transport);
  cli::set_unless_given(app, "--compress", plan.compress);
  if (plan.bucket_bytes > 0) cli::set_unless_given(app, "--bucket", std::to_string(plan.bucket_bytes));
  cli::set_unless_given(app, "--sync", plan.sync);
  if (!plan.place.empty() && !is_given("--sync")) {
    try {
      check_places(plan.sync, plan.place, plan.ranks);
    } catch (const Error& problem) {
      throw Error(ErrorKind::config, fmt::format("the plan's place does not suit it: {}", problem.what()));
    }
    cli::set_unless_given(app, "--place", plan.place);
  }
  if (chooses) options.trainer.tuning = table_of(plan);
  // What somebody chose is not chosen again, nor where no other steps are like those of the plan.
  if (obeyed && plan.unequal.stragglers.empty()) {
    options.trainer.planned = planning::expected(plan, plan.ranks);  // each holds all of the model
    options.trainer.planned_unequal = plan.unequal.any();
  }
  options.plan = plan;
}

void check_plan(const Options& options, Rank world) {
  if (!options.plan || options.plan->ranks == world) return;
  throw Error(
      ErrorKind::usage,
      fmt::format("the plan is for {0} ranks and these are {1}; make another one with ranvier plan --world {1}, on a "
                  "network that ranvier probe measured with {1} ranks first",
                  options.plan->ranks, world));
}

Rank rank_at(const Plan& plan, Rank place) {
  const auto found = std::ranges::find(plan.placement, place);
  return found == plan.placement.end() ? place : static_cast<Rank>(found - plan.placement.begin());
}

PlanComparison compare(const Plan& plan, const trainer::TrainResult& result) {
  // Steps behind the last change are what the median is of.
  const auto* expected = result.changes.empty() ? nullptr : &result.changes.back().change.expected;
  const bool anew = expected != nullptr && expected->step > 0;
  const bool alike = has_equal_steps(plan);
  const double planned_waiting_ns = anew ? expected->waiting * 1e9 : waiting_ns(plan, plan.ranks);
  const double step_seconds = alike ? result.median_step_seconds : result.mean_step_seconds;
  PlanComparison comparison{.predicted_ns = anew ? expected->step * 1e9 : plan.step_ns,
                            // Stragglers are late in steps of their own, which these need not be.
                            .measured_ns = plan.unequal.stragglers.empty() ? step_seconds * 1e9 : 0};
  const double planned_computing_ns = anew ? comparison.predicted_ns - planned_waiting_ns : plan.compute_ns;
  if (!(comparison.predicted_ns > 0) || !(comparison.measured_ns > 0)) return comparison;
  comparison.error = comparison.measured_ns / comparison.predicted_ns - 1;
  if (std::abs(comparison.error) <= tolerated_error) return comparison;
  if (plan.unequal.any()) {  // who waits for whom, a mean over the workers does not tell
    comparison.advice =
        "its workers compute or its network carries at other speeds: record and measure them again (ranvier train "
        "--record DIR, ranvier probe), then plan again by --speeds and --jitter as they are";
    return comparison;
  }
  const double waiting_ns = (alike ? result.median_waiting_seconds : result.mean_waiting_seconds) * 1e9;
  const double computing_ns = comparison.measured_ns - waiting_ns;
  if (std::abs(computing_ns - planned_computing_ns) > std::abs(waiting_ns - planned_waiting_ns))
    comparison.advice = fmt::format(
        "computing took {:.2f} ms of a step and not {:.2f}: record it again (ranvier train --record DIR), then plan "
        "again",
        computing_ns / 1e6, planned_computing_ns / 1e6);
  else
    comparison.advice = fmt::format(
        "a step waited {:.2f} ms for the network and not {:.2f}: measure it again (ranvier probe), then plan again",
        waiting_ns / 1e6, planned_waiting_ns / 1e6);
  return comparison;
}

trainer::PlanChange plan_again(const Plan& plan, const trainer::PlanChange& current, const trainer::WrongPlan& wrong,
                               std::chrono::milliseconds limit) {
  Plan followed = planning::expecting(plan, wrong.planned, plan.ranks);
  followed.compress = current.compress;
  followed.bucket_bytes = current.bucket_bytes;
  std::string transport;  // of which there are rows; those of others say the same, see table_of
  std::vector<FastestAlgorithm> rows;
  for (const TuningRow& row : current.tuning.rows()) {
    if (row.collective != Collective::all_reduce || row.ranks != plan.ranks) continue;
    if (plan.transport != "auto" && row.transport != plan.transport) continue;
    if (rows.empty()) transport = row.transport;
    if (row.transport == transport) rows.push_back({.up_to = row.up_to, .algorithm = row.algorithm});
  }
  if (!rows.empty()) followed.all_reduce = std::move(rows);
  const auto [now, reason] =
      planning::replan(followed, {.step = wrong.measured, .gradient_bytes = wrong.gradient_bytes},
                       {.time = limit, .flag = "--replan-limit"});
  return {.tuning = table_of(now),
          .compress = now.compress,
          .bucket_bytes = now.bucket_bytes,
          .expected = planning::expected(now, now.ranks),
          .reason = reason};
}

}  // namespace ranvier::train
