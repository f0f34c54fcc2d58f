#include "simulate/failure_rate.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace ranvier::simulation {
namespace {

double interval_s(const FailureRate& rate, const StepWithFailures& each) {
  return static_cast<double>(each.checkpoint_steps) * rate.step_ns / 1e9;
}

std::string checkpoints(const FailureRate& rate, const StepWithFailures& each) {
  return fmt::format("a checkpoint every {} steps ({:.1f} s)", each.checkpoint_steps, interval_s(rate, each));
}

std::string best_of(const FailureRate& rate) {
  return fmt::format("; best: {:.2f} % with {}", rate.best.goodput * 100, checkpoints(rate, rate.best));
}

// Of less than one in ten thousand the time of a step that counts is a number of many digits, and nobody waits for it.
bool counts(const StepWithFailures& each) { return each.goodput >= 1e-4; }

}  // namespace

FailureRate failure_rate(double step_ns, Rank world, FailureModel model) {
  FailureRate rate{.step_ns = step_ns, .chosen = with_failures(step_ns, world, model), .best = {}};
  model.checkpoint_steps = 0;
  rate.best = with_failures(step_ns, world, model);
  return rate;
}

void print(const FailureRate& rate) {
  if (!counts(rate.chosen)) {
    fmt::print("{:>8} with failures no step counts: they come faster than {}{}\n", "", checkpoints(rate, rate.chosen),
               counts(rate.best) ? best_of(rate) : "");
    return;
  }
  const bool is_best = rate.chosen.checkpoint_steps == rate.best.checkpoint_steps;
  fmt::print("{:>8} with failures {:.4f} ms for a step that counts: goodput {:.2f} % with {}{}\n", "",
             rate.chosen.step_ns / 1e6, rate.chosen.goodput * 100, checkpoints(rate, rate.chosen),
             is_best ? ", as is best" : best_of(rate));
}

nlohmann::json to_json(const FailureRate& rate) {
  nlohmann::json result{{"goodput", rate.chosen.goodput},
                        {"lost_share", 1 - rate.chosen.goodput},
                        {"checkpoint_steps", rate.chosen.checkpoint_steps},
                        {"checkpoint_interval_s", interval_s(rate, rate.chosen)},
                        {"best_goodput", rate.best.goodput},
                        {"best_checkpoint_steps", rate.best.checkpoint_steps},
                        {"best_checkpoint_interval_s", interval_s(rate, rate.best)}};
  // Where failures come faster than steps no time is long enough, and JSON has no number for that.
  if (counts(rate.chosen)) result["step_with_failures_ns"] = rate.chosen.step_ns;
  return result;
}

}  // namespace ranvier::simulation
