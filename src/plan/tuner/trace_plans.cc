// Ways to communicate in a recorded step: of a trace nothing but networks and algorithms can be chosen.
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "plan/simulate/step.h"
#include "plan/tuner/possible.h"

namespace ranvier {
namespace {

constexpr double least_difference = 1e-4;  // as parts of a step's time: less is not told apart

struct Candidate {
  std::size_t order;
  std::size_t network;
  std::string algorithm;
  double least_ns;
};

StepSimulation how(const PlanNetwork& network, const std::string& algorithm) {
  StepSimulation result{.algorithm = algorithm, .options = network.options};
  if (algorithm == by_size) {
    result.algorithm = network.by_size.back().algorithm;
    result.by_size = network.by_size;
  }
  return result;
}

}  // namespace

std::vector<PlanChoice> rank_plans(const ExecutionTrace& trace, const std::vector<PlanNetwork>& networks,
                                   const PlanSearch& search) {
  std::string refusal = "none was named";
  std::vector<std::unique_ptr<plan::CollectiveTimes>> times;
  std::vector<Candidate> candidates;
  for (const PlanNetwork& network : networks) {
    times.push_back(
        std::make_unique<plan::CollectiveTimes>(Workload{.name = trace.name}, network.topology, network.options));
    auto algorithms = search.algorithms;
    if (!network.by_size.empty()) algorithms.emplace_back(by_size);
    for (const std::string& algorithm : algorithms) {
      const auto least = plan::if_possible(
          [&] { return plan::least_step_ns(trace, how(network, algorithm), *times.back()); }, refusal);
      if (least) candidates.push_back({candidates.size(), times.size() - 1, algorithm, *least});
    }
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::least_ns);

  struct Found {
    std::size_t order;
    PlanChoice choice;
  };
  std::vector<Found> found;
  std::vector<double> best(networks.size(), std::numeric_limits<double>::infinity());
  double least = std::numeric_limits<double>::infinity(), second = least;
  for (const Candidate& each : candidates) {
    const bool may_matter = each.least_ns <= second * (1 - least_difference) || each.least_ns < best[each.network];
    if (!may_matter && !search.exhaustive) continue;
    std::optional<StepPrediction> step;
    try {
      step = plan::if_possible(
          [&] { return plan::simulate_step(trace, how(networks[each.network], each.algorithm), *times[each.network]); },
          refusal);
    } catch (const Error& ended) {
      if (ended.kind() != ErrorKind::timeout || found.empty()) throw;
      break;
    }
    if (!step) continue;
    const double ns = step->step_ns;
    best[each.network] = std::min(best[each.network], ns);
    second = std::min(second, std::max(least, ns));
    least = std::min(least, ns);
    found.push_back(
        {each.order, {.algorithm = each.algorithm, .codec = {}, .network = each.network, .step = std::move(*step)}});
    found.back().choice.step_ns = ns;
  }
  if (found.empty()) plan::refuse_all(refusal);
  // Equal ones in the order in which they were asked for, not in that of their bounds.
  std::ranges::sort(found, {}, &Found::order);
  std::ranges::stable_sort(found, {}, [](const Found& each) { return each.choice.step_ns; });
  std::vector<PlanChoice> choices;
  choices.reserve(found.size());
  for (Found& each : found) choices.push_back(std::move(each.choice));
  return choices;
}

}  // namespace ranvier
