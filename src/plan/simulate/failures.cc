// What failures cost in the long run.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ranvier/simulate.h"

namespace ranvier {
namespace {

constexpr double ns_of_second = 1e9;

// Daly's equation 20: what of the time goes into steps that count, with a checkpoint behind each `interval`.
double goodput(double interval, double checkpoint, double recovery, double between) {
  return interval / (between * std::exp(recovery / between) * std::expm1((interval + checkpoint) / between));
}

// Daly's equation 37, of which the first term is Young's (CACM 17, 1974).
double best_interval(double checkpoint, double between) {
  const double share = checkpoint / (2 * between);
  if (share >= 1) return between;
  return std::sqrt(2 * checkpoint * between) * (1 + std::sqrt(share) / 3 + share / 9) - checkpoint;
}

}  // namespace

StepWithFailures with_failures(double step_ns, Rank world, const FailureModel& model) {
  if (!(model.mtbf_hours > 0)) return {.step_ns = step_ns};
  const double between = model.mtbf_hours * 3600 * ns_of_second / world;  // failures of any rank
  const double checkpoint = model.checkpoint_s * ns_of_second;
  const double recovery = (model.detection_s + model.recovery_s) * ns_of_second;
  const auto of_steps = [&](double steps) { return goodput(steps * step_ns, checkpoint, recovery, between); };
  auto steps = static_cast<double>(model.checkpoint_steps);
  if (model.checkpoint_steps == 0) {
    steps = std::max(1.0, std::floor(best_interval(checkpoint, between) / step_ns));
    if (of_steps(steps + 1) > of_steps(steps)) ++steps;
  }
  StepWithFailures result{.step_ns = std::numeric_limits<double>::infinity(), .goodput = of_steps(steps)};
  if (result.goodput > 0) result.step_ns = step_ns / result.goodput;
  result.checkpoint_steps = static_cast<std::uint64_t>(steps);
  return result;
}

}  // namespace ranvier
