// Steps of training by a synchronization policy: the policy itself says what is averaged when, and each kind of step is
// simulated once.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/simulate/policy.h"
#include "plan/simulate/step.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr std::uint64_t most_unequal = 4096;

// What a replica does by itself.
Workload without_averages(Workload workload) {
  for (auto& layer : workload.layers) std::erase_if(layer.weight_gradient.communications, plan::is_average);
  return workload;
}

std::uint64_t replicas_in(const Workload& workload, Rank world) {
  return static_cast<std::uint64_t>(world / (workload.degrees.tensor * workload.degrees.pipeline));
}

// When each replica has done its steps so far. All are one where they are equal.
class Clocks {
 public:
  explicit Clocks(std::vector<Slowness> replicas)
      : replicas_(std::move(replicas)), at_(std::max<std::size_t>(replicas_.size(), 1)), alone_(at_.size()) {}

  // Each takes so long to a step, a part of which, `computing`, is what slow ones are slow at.
  void take_step(std::uint64_t step, double computing, double all) {
    for (std::size_t i = 0; i < at_.size(); ++i) {
      const double late = replicas_.empty() ? 0 : (replicas_[i].of(step) - 1) * computing;
      at_[i] += late + all;
      alone_[i] += late;
    }
  }
  // All are there.
  double last() const { return std::ranges::max(at_); }
  void wait_until(double ns) {
    for (double& each : at_) each = std::max(each, ns);
  }
  // How much longer the slowest one's computing has taken than a usual one's.
  double slowest() const { return std::ranges::max(alone_); }

 private:
  std::vector<Slowness> replicas_;
  std::vector<double> at_, alone_;
};

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

void check_replicas(const Workload& workload, Rank world, const UnequalWorkers& unequal) {
  const std::uint64_t count = replicas_in(workload, world);
  if (!unequal.any() || count == 0) return;  // degrees that make no world are refused with its step
  if (count > most_unequal)
    throw Error(ErrorKind::usage, fmt::format("unequal workers are simulated one by one, up to {} of them, and {} "
                                              "ranks are {} replicas; name a smaller world",
                                              most_unequal, world, count));
  check_workers(unequal, count);
}

PolicyPrediction simulate_policy(SyncPolicy& policy, const Workload& workload, const Topology& topology,
                                 const StepSimulation& how, std::uint64_t steps, const UnequalWorkers& unequal) {
  check_replicas(workload, topology.world, unequal);
  plan::CollectiveTimes times(workload, topology, how.options);
  std::vector<Slowness> replicas;
  for (std::uint64_t replica = 0; unequal.any() && replica < replicas_in(workload, topology.world); ++replica)
    replicas.emplace_back(unequal, replica, 0);
  return plan::simulate_policy(policy, workload, how, times, steps, std::move(replicas));
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
                                 CollectiveTimes& times, std::uint64_t steps, std::vector<Slowness> replicas) {
  check_predictable(policy);
  StepPrediction together = simulate_step(workload, how, times);
  StepPrediction apart = simulate_step(without_averages(workload), how, times);
  const double average = simulate_step(only_averages(workload), how, times).step_ns;
  // Workers are slow at their passes, and with them a pipeline at filling; not at loading data and at the optimizer.
  const double passes = together.compute_ns - (workload.degrees.pipeline > 1 ? 0 : workload.idle_ns);

  PolicyPrediction result;
  double begun_at = 0;  // when the fragment under way left
  double in_steps = 0;
  std::uint64_t steps_together = 0;
  Clocks clocks(std::move(replicas));
  for (std::uint64_t step = 0; step < steps; ++step) {
    const bool averages_gradients = !policy.react({.point = SyncPoint::step_begins, .step = step}).empty();
    const double before = clocks.last();
    clocks.take_step(step, passes, averages_gradients ? together.step_ns : apart.step_ns);
    if (averages_gradients) clocks.wait_until(clocks.last());
    in_steps += clocks.last() - before;
    steps_together += averages_gradients ? 1 : 0;
    result.rounds_per_step += averages_gradients ? 1 : 0;
    for (const SyncAction& each : policy.react({.point = SyncPoint::step_ended, .step = step + 1})) {
      if (each.what == SyncAction::What::push)
        throw Error(ErrorKind::usage, fmt::format("'{}' sends to one rank at a time, which simulate has no cost for; "
                                                  "take a policy that averages everybody's",
                                                  policy.spec()));
      if (each.what == SyncAction::What::begin_fragment) begun_at = clocks.last();
      if (each.what == SyncAction::What::finish_fragment)
        clocks.wait_until(begun_at + average / static_cast<double>(policy.fragments()));
      if (each.what == SyncAction::What::parameters) clocks.wait_until(clocks.last() + average);
      result.rounds_per_step += each.what == SyncAction::What::finish_fragment ? 0 : 1;
    }
  }
  const auto count = static_cast<double>(std::max<std::uint64_t>(steps, 1));
  result.step_ns = clocks.last() / count;
  result.exposed_communication_ns = result.step_ns - apart.step_ns - clocks.slowest() / count;
  result.rounds_per_step /= count;
  result.between_steps_ns = (clocks.last() - in_steps) / count;
  result.averages_gradients = 2 * steps_together >= steps;
  result.usual = std::move(result.averages_gradients ? together : apart);
  return result;
}

}  // namespace plan
}  // namespace ranvier
