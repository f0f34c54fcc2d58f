#include "plan/planned_step.h"

#include <algorithm>

namespace ranvier::planning {

bool averages_every_step(const Plan& plan) { return plan.sync == "bsp"; }

bool has_equal_steps(const Plan& plan) { return averages_every_step(plan) && !plan.unequal.any(); }

double mean_slowness(const UnequalWorkers& workers, Rank replicas) {
  double sum = replicas - static_cast<double>(workers.speeds.size());
  for (const double speed : workers.speeds) sum += 1 / speed;
  return sum / replicas * (1 + workers.jitter_share * (workers.jitter_factor - 1));
}

double waiting_ns(const Plan& plan, Rank replicas) {
  if (has_equal_steps(plan)) return plan.exposed_communication_ns;
  return std::max(plan.step_ns - plan.compute_ns * mean_slowness(plan.unequal, replicas), 0.0);
}

StepSeconds expected(const Plan& plan, Rank replicas) { return {plan.step_ns / 1e9, waiting_ns(plan, replicas) / 1e9}; }

Plan expecting(Plan plan, const StepSeconds& seconds, Rank replicas) {
  plan.step_ns = seconds.step * 1e9;
  plan.compute_ns = (seconds.step - seconds.waiting) * 1e9 / mean_slowness(plan.unequal, replicas);
  plan.exposed_communication_ns = seconds.waiting * 1e9;
  return plan;
}

}  // namespace ranvier::planning
