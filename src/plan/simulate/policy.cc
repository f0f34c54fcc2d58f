// Steps of training by a synchronization policy: the policy itself says what is averaged when, and each kind of step is
// simulated once.
#include <fmt/format.h>

#include <algorithm>

#include "plan/simulate/policy.h"
#include "plan/simulate/step.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

// What a replica does by itself.
Workload without_averages(Workload workload) {
  for (auto& layer : workload.layers) std::erase_if(layer.weight_gradient.communications, plan::is_average);
  return workload;
}

}  // namespace

void check_predictable(const SyncPolicy& policy) {
  if (policy.levels().size() != 1 || policy.server() || policy.meets_peers())
    throw Error(ErrorKind::usage,
                fmt::format("'{}' has nodes, servers or peers, which steps of all ranks alike do not show; name "
                            "a policy that averages everybody's, such as bsp, local:16 or diloco:30",
                            policy.spec()));
  if (policy.wants_spread())
    throw Error(ErrorKind::usage, fmt::format("'{}' goes by how far replicas part, which is not known before they "
                                              "train; give a period without adapt",
                                              policy.spec()));
}

PolicyPrediction simulate_policy(SyncPolicy& policy, const Workload& workload, const Topology& topology,
                                 const StepSimulation& how, std::uint64_t steps) {
  plan::CollectiveTimes times(workload, topology, how.options);
  return plan::simulate_policy(policy, workload, how, times, steps);
}

namespace plan {

Workload only_averages(Workload workload) {
  workload.idle_ns = 0;
  for (auto& layer : workload.layers) {
    layer.forward = {};
    layer.input_gradient = {};
    layer.weight_gradient.compute_ns = 0;
    std::erase_if(layer.weight_gradient.communications, [](const Communication& each) { return !is_average(each); });
  }
  return workload;
}

PolicyPrediction simulate_policy(SyncPolicy& policy, const Workload& workload, const StepSimulation& how,
                                 CollectiveTimes& times, std::uint64_t steps) {
  check_predictable(policy);
  StepPrediction together = simulate_step(workload, how, times);
  StepPrediction apart = simulate_step(without_averages(workload), how, times);
  const double average = simulate_step(only_averages(workload), how, times).step_ns;

  PolicyPrediction result;
  double begun_at = 0;  // when the fragment under way left
  double now = 0;
  double in_steps = 0;
  std::uint64_t steps_together = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    const bool averages_gradients = !policy.react({.point = SyncPoint::step_begins, .step = step}).empty();
    const double step_ns = averages_gradients ? together.step_ns : apart.step_ns;
    now += step_ns;
    in_steps += step_ns;
    steps_together += averages_gradients ? 1 : 0;
    result.rounds_per_step += averages_gradients ? 1 : 0;
    for (const SyncAction& each : policy.react({.point = SyncPoint::step_ended, .step = step + 1})) {
      if (each.what == SyncAction::What::push)
        throw Error(ErrorKind::usage, fmt::format("'{}' sends to one rank at a time, which simulate has no cost for; "
                                                  "take a policy that averages everybody's",
                                                  policy.spec()));
      if (each.what == SyncAction::What::begin_fragment) begun_at = now;
      if (each.what == SyncAction::What::finish_fragment)
        now = std::max(now, begun_at + average / static_cast<double>(policy.fragments()));
      if (each.what == SyncAction::What::parameters) now += average;
      result.rounds_per_step += each.what == SyncAction::What::finish_fragment ? 0 : 1;
    }
  }
  const auto count = static_cast<double>(std::max<std::uint64_t>(steps, 1));
  result.step_ns = now / count;
  result.exposed_communication_ns = result.step_ns - apart.step_ns;
  result.rounds_per_step /= count;
  result.between_steps_ns = (now - in_steps) / count;
  result.averages_gradients = 2 * steps_together >= steps;
  result.usual = std::move(result.averages_gradients ? together : apart);
  return result;
}

}  // namespace plan
}  // namespace ranvier
