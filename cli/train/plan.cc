#include "train/plan.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>

#include "ranvier/error.h"

namespace ranvier::train {
namespace {

void set(CLI::App& app, const std::string& name, const std::string& value) {
  auto* option = app.get_option("--" + name);
  if (option->count() > 0) return;
  option->add_result(value);
  option->run_callback();
}

// A plan for "auto" is for whichever transport the ranks meet over.
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

}  // namespace

void apply_plan(CLI::App& app, const Plan& plan, Options& options) {
  const bool chooses = app.get_option("--algorithm")->count() == 0 && app.get_option("--tuning")->count() == 0;
  set(app, "transport", plan.transport);
  set(app, "compress", plan.compress);
  set(app, "bucket", std::to_string(plan.bucket_bytes));
  if (chooses) options.trainer.tuning = table_of(plan);
  options.trainer.planned_step_seconds = plan.step_ns / 1e9;
  options.plan = plan;
}

void check_plan(const Options& options, Rank world) {
  if (!options.plan || options.plan->ranks == world) return;
  throw Error(ErrorKind::usage,
              fmt::format("the plan is for {} ranks and these are {}; make another one with ranvier plan --world {}",
                          options.plan->ranks, world, world));
}

PlanComparison compare(const Plan& plan, const trainer::TrainResult& result) {
  PlanComparison comparison{.predicted_ns = plan.step_ns, .measured_ns = result.median_step_seconds * 1e9};
  if (!(comparison.predicted_ns > 0)) return comparison;
  comparison.error = comparison.measured_ns / comparison.predicted_ns - 1;
  if (std::abs(comparison.error) <= trainer::tolerated_error) return comparison;
  const double waiting_ns = result.median_waiting_seconds * 1e9;
  const double computing_ns = comparison.measured_ns - waiting_ns;
  if (std::abs(computing_ns - plan.compute_ns) > std::abs(waiting_ns - plan.exposed_communication_ns))
    comparison.advice = fmt::format(
        "computing took {:.2f} ms of a step and not {:.2f}: record it again (ranvier train --record DIR), then plan "
        "again",
        computing_ns / 1e6, plan.compute_ns / 1e6);
  else
    comparison.advice = fmt::format(
        "a step waited {:.2f} ms for the network and not {:.2f}: measure it again (ranvier probe), then plan again",
        waiting_ns / 1e6, plan.exposed_communication_ns / 1e6);
  return comparison;
}

}  // namespace ranvier::train
