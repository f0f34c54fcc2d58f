#include "simulate/plan.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>

#include "ranvier/error.h"
#include "ranvier/sync.h"
#include "simulate/workload.h"

namespace ranvier::simulation {

void apply_plan(CLI::App& app, const Plan& plan, Options& options) {
  const auto is_given = [&](const char* flag) { return app.get_option(flag)->count() > 0; };
  const auto set = [&](const std::string& flag, const std::string& value) {
    if (!value.empty()) cli::set_unless_given(app, flag, value);
  };
  // Then what the plan expects is of something else.
  const bool is_changed = std::ranges::any_of(
      std::array{"--workload", "--communicator", "--topology", "--link-rate", "--latency-us", "--compress", "--sync",
                 "--place", "--bucket", "--slice", "--at-once", "--algorithm", "--in-network", "--straggler", "--cut"},
      is_given);
  if (is_given("--world") && app.get_option("--world")->as<std::string>() != std::to_string(plan.ranks))
    throw Error(
        ErrorKind::usage,
        fmt::format("the plan is for {} ranks; leave out --world, or make another one with ranvier plan --world N",
                    plan.ranks));
  set("--world", std::to_string(plan.ranks));
  if (!is_given("--topology")) {
    set("--topology", plan.network);
    if (plan.link_gbit > 0) {
      set("--link-rate", fmt::format("{}Gbit", plan.link_gbit));
      set("--latency-us", fmt::format("{}", plan.latency_us));
    }
    // Switches add up along their dimensions, whose ranks are numbered as they stand.
    if (!is_given("--in-network")) options.placement = plan.placement;
  }
  if (!is_given("--bytes")) {
    if (!is_given("--workload")) set("--communicator", plan.communicator);
    set("--workload", plan.workload);
    options.by_graph = names_a_trace(plan.workload) && plan.bucket_bytes == 0;
    if (plan.compress != "none") set("--compress", plan.compress);
    if (plan.sync != "bsp") set("--sync", plan.sync);
    const auto sync = app.get_option("--sync")->as<std::string>();
    if (!sync.empty() && make_sync_policy(sync, {})->levels().size() > 1) set("--place", plan.place);
    if (plan.bucket_bytes > 0) set("--bucket", std::to_string(plan.bucket_bytes));
    if (!is_given("--speeds") && !is_given("--jitter") && !is_given("--straggle")) {
      set("--speeds", speeds_in_words(plan.unequal));
      set("--jitter", jitter_in_words(plan.unequal));
      set("--straggle", stragglers_in_words(plan.unequal));
    }
    if (!options.policy.unequal.any() && !is_changed) {
      options.planned_ns = plan.step_ns;
      if (!plan.because.empty() && plan.because.front().starts_with(Plan::again))
        options.measured = plan.because.front().substr(Plan::again.size());
    }
  }
  if (is_given("--algorithm") || is_given("--in-network")) return;
  if (!is_given("--bytes")) {
    options.step.by_size = plan.all_reduce;
    return;
  }
  const auto row = std::ranges::find_if(plan.all_reduce, [&](const auto& each) { return options.bytes <= each.up_to; });
  if (row != plan.all_reduce.end()) options.step.algorithm = row->algorithm;
}

}  // namespace ranvier::simulation
