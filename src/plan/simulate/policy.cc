// Steps of training by a synchronization policy: the policy itself says what is averaged when, and each kind of step is
// simulated once.
#include "plan/simulate/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "plan/simulate/levels.h"
#include "plan/simulate/step.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr std::uint64_t most_unequal = 4096;

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
  // Those of a group wait for one another, and then for as long. `groups`: by replica, below 0 for who does not wait;
  // none: all are one.
  void meet(std::span<const int> groups, double ns) {
    if (groups.empty() || at_.size() == 1) {
      if (groups.empty() || std::ranges::any_of(groups, [](int group) { return group >= 0; })) wait_until(last() + ns);
      return;
    }
    std::map<int, double> last_of;
    for (std::size_t i = 0; i < at_.size(); ++i) {
      double& last = last_of[groups[i]];
      last = std::max(last, at_[i]);
    }
    for (std::size_t i = 0; i < at_.size(); ++i)
      if (groups[i] >= 0) at_[i] = last_of[groups[i]] + ns;
  }
  // Each waits for the one `hops` before it, whose message takes as long.
  void push(std::size_t hops, double ns) {
    const std::vector<double> before = at_;
    for (std::size_t i = 0; i < at_.size(); ++i)
      at_[i] = std::max(before[i], before[(i + at_.size() - hops % at_.size()) % at_.size()]) + ns;
  }
  // How much longer the slowest one's computing has taken than a usual one's.
  double slowest() const { return std::ranges::max(alone_); }

 private:
  std::vector<Slowness> replicas_;
  std::vector<double> at_, alone_;
};

std::vector<Slowness> slow_replicas(const PolicySimulation& how, Rank count) {
  std::vector<Slowness> replicas;
  for (Rank replica = 0; how.unequal.any() && replica < count; ++replica)
    replicas.emplace_back(how.unequal, static_cast<std::uint64_t>(replica), how.seed);
  return replicas;
}

}  // namespace

void check_predictable(const SyncPolicy& policy, const PolicySimulation& how) {
  if (policy.wants_spread() && !how.spread)
    throw Error(ErrorKind::usage,
                fmt::format("'{}' goes by how far replicas part, which is not known before they train; say by --spread "
                            "what is assumed, or give a period without adapt",
                            policy.spec()));
  const std::size_t levels = policy.levels().size();
  if (levels == 1 && !how.levels.empty() && how.levels.size() != 2)
    throw Error(ErrorKind::usage,
                fmt::format("'{}' has one level, of everybody, and others are placed; leave them out", policy.spec()));
  if (levels > 1 && how.levels.size() != levels + 1)
    throw Error(ErrorKind::usage, fmt::format("'{}' averages inside {}s, and nothing says who shares one; write "
                                              "--place {}=2 for so many of consecutive replicas",
                                              policy.spec(), policy.levels().front(), policy.levels().front()));
}

void check_replicas(const Workload& workload, Rank world, const UnequalWorkers& unequal) {
  const auto count = static_cast<std::uint64_t>(replicas_in(workload, world));
  if (!unequal.any() || count == 0) return;  // degrees that make no world are refused with its step
  if (count > most_unequal)
    throw Error(ErrorKind::usage, fmt::format("unequal workers are simulated one by one, up to {} of them, and {} "
                                              "ranks are {} replicas; name a smaller world",
                                              most_unequal, world, count));
  check_workers(unequal, count);
}

PolicyPrediction simulate_policy(SyncPolicy& policy, const Workload& workload, const Topology& topology,
                                 const StepSimulation& how, const PolicySimulation& simulation) {
  check_replicas(workload, topology.world, simulation.unequal);
  plan::CollectiveTimes times(workload, topology, how.options);
  return plan::simulate_policy(policy, workload, how, times, simulation);
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

Workload without_averages(Workload workload) {
  for (auto& layer : workload.layers) std::erase_if(layer.weight_gradient.communications, is_average);
  return workload;
}

double passes_ns(const StepPrediction& step, const Workload& workload) {
  return step.compute_ns + step.idle_ns - workload.idle_ns;
}

PolicyPrediction simulate_policy(SyncPolicy& policy, const Workload& workload, const StepSimulation& how,
                                 CollectiveTimes& times, const PolicySimulation& simulation) {
  check_predictable(policy, simulation);
  if (policy.server()) return simulate_servers(policy, workload, how, times, simulation);
  if (policy.meets_peers()) return simulate_peers(policy, workload, how, times, simulation);
  LevelAverages averages(workload, how, simulation, times);
  StepPrediction apart = simulate_step(without_averages(workload), how, times);
  const double passes = passes_ns(apart, workload);
  const std::size_t everybody = policy.levels().size();
  const std::uint64_t steps = simulation.steps > 0 ? simulation.steps : steps_of_a_policy;

  PolicyPrediction result{.steps = steps};
  double begun_at = 0;  // when what is under way left
  double in_steps = 0;
  std::map<std::size_t, std::uint64_t> steps_at;  // so many average gradients at each level; 0: nowhere
  Clocks clocks(slow_replicas(simulation, replicas_in(workload, times.world())));
  for (std::uint64_t step = 0; step < steps; ++step) {
    const auto asked = policy.react({.point = SyncPoint::step_begins, .step = step});
    const std::size_t level = asked.empty() ? 0 : asked.front().level;
    const double before = clocks.last();
    clocks.take_step(step, passes, level > 0 ? averages.step(level).step_ns : apart.step_ns);
    if (level > 0) clocks.meet(averages.groups(level), 0);
    in_steps += clocks.last() - before;
    ++steps_at[level];
    result.rounds_per_step += level > 0 ? 1 : 0;
    bool agreed = level == everybody;
    for (const SyncAction& each : policy.react({.point = SyncPoint::step_ended, .step = step + 1})) {
      if (each.what == SyncAction::What::push) clocks.push(each.hops, averages.push_ns(each.hops));
      if (each.what == SyncAction::What::begin_fragment || each.what == SyncAction::What::begin_average)
        begun_at = clocks.last();
      if (each.what == SyncAction::What::finish_fragment)
        clocks.wait_until(begun_at + averages.parameters(0, everybody).ns / static_cast<double>(policy.fragments()));
      if (each.what == SyncAction::What::finish_average)
        clocks.wait_until(begun_at + averages.parameters(each.inside, each.level).ns);
      if (each.what == SyncAction::What::parameters) {
        const auto& [groups, ns] = averages.parameters(each.inside, each.level);
        clocks.meet(groups, ns);
        agreed = each.level == everybody;
      }
      result.rounds_per_step +=
          each.what == SyncAction::What::finish_fragment || each.what == SyncAction::What::finish_average ? 0 : 1;
    }
    if (agreed) policy.react({.point = SyncPoint::averaged, .step = step + 1, .spread = simulation.spread.value_or(0)});
  }
  const auto count = static_cast<double>(steps);
  result.step_ns = clocks.last() / count;
  result.exposed_communication_ns = result.step_ns - apart.step_ns - clocks.slowest() / count;
  result.rounds_per_step /= count;
  result.between_steps_ns = (clocks.last() - in_steps) / count;
  const std::size_t usual = std::ranges::max_element(steps_at, {}, [](const auto& each) {
                              return std::pair(each.second, each.first);
                            })->first;
  result.averages_gradients = usual > 0;
  if (usual > 0)
    result.usual = averages.step(usual);
  else
    result.usual = std::move(apart);
  return result;
}

}  // namespace plan
}  // namespace ranvier
