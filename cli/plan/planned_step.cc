#include "plan/planned_step.h"

#include <algorithm>

namespace ranvier::planning {

bool averages_every_step(const Plan& plan) { return plan.sync == "bsp"; }

bool has_equal_steps(const Plan& plan) { return averages_every_step(plan) && !plan.unequal.any(); }

double mean_slowness(const Plan& plan) {
  const UnequalWorkers& workers = plan.unequal;
  double sum = plan.ranks - static_cast<double>(workers.speeds.size());
  for (const double speed : workers.speeds) sum += 1 / speed;
  return sum / plan.ranks * (1 + workers.jitter_share * (workers.jitter_factor - 1));
}

double waiting_ns(const Plan& plan) {
  if (has_equal_steps(plan)) return plan.exposed_communication_ns;
  return std::max(plan.step_ns - plan.compute_ns * mean_slowness(plan), 0.0);
}

StepSeconds expected(const Plan& plan) { return {plan.step_ns / 1e9, waiting_ns(plan) / 1e9}; }

Plan expecting(Plan plan, const StepSeconds& seconds) {
  plan.step_ns = seconds.step * 1e9;
  plan.compute_ns = (seconds.step - seconds.waiting) * 1e9 / mean_slowness(plan);
  plan.exposed_communication_ns = seconds.waiting * 1e9;
  return plan;
}

}  // namespace ranvier::planning
