#include "design/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ranvier/error.h"
#include "simulate/workload.h"

namespace ranvier::design {
namespace {

// Not what is ready-made, whatever stands in the folder; else where there is one of that name, or where it looks so.
bool is_file(const std::string& name) {
  if (std::ranges::count(workload_names(), std::string_view(name).substr(0, name.find(':'))) > 0) return false;
  return std::filesystem::is_regular_file(name) || name.ends_with(".txt") || name.find('/') != std::string::npos;
}

bool knows_its_groups(const std::string& name) { return name.ends_with(".toml") || name.ends_with(".et"); }

struct Placed {
  Workload workload;
  Placement placement;
};

Placed placed(const Options& options, const std::string& name) {
  if (knows_its_groups(name) || !is_file(name)) {
    Workload workload = simulation::load_workload(name);
    Placement placement = place(workload.degrees, options.network);
    return {std::move(workload), std::move(placement)};
  }
  if (options.communicator_file.empty())
    throw Error(ErrorKind::usage, fmt::format("{} does not say which dimensions its collectives span; add "
                                              "--communicator FILE",
                                              name));
  return {read_astra_workload(name, {}, true), read_libra_communicator(options.communicator_file, options.network)};
}

}  // namespace

DesignProblem problem_of(const Options& options) {
  const auto asks = [](const std::string& name) { return is_file(name) && !knows_its_groups(name); };
  if (!options.communicator_file.empty() && std::ranges::none_of(options.workloads, asks))
    throw Error(ErrorKind::usage, "--communicator is of workloads in ASTRA-sim's text; leave it out");
  DesignProblem problem{.step = {}, .constraints = options.constraints, .objective = options.objective};
  if (!options.traffic_file.empty()) {
    problem.step = read_traffic(options.traffic_file, options.network.dimensions.size());
  } else {
    std::vector<StepTime> steps;
    for (const auto& name : options.workloads) {
      const auto [workload, placement] = placed(options, name);
      steps.push_back(step_time(workload, placement, options.network, options.step));
    }
    problem.step = weighted_sum(steps, options.weights);
  }
  if (options.nics) problem.step = with_any_failure(problem.step, options.network, *options.nics);
  for (const double cost : options.unit_costs)
    problem.dollars_per_gbps.push_back(cost * static_cast<double>(options.network.npus()));
  return problem;
}

std::vector<ChunkOrders> chunk_orders(const Options& options, const Design& design) {
  std::vector<ChunkOrders> found;
  if (options.step.order == ChunkOrder::fixed) return found;
  for (const auto& name : options.workloads) {
    const auto [workload, placement] = placed(options, name);
    for (const Layer& layer : workload.layers)
      for (const Phase* phase : {&layer.forward, &layer.input_gradient, &layer.weight_gradient})
        for (const Communication& each : phase->communications) {
          const GroupSizes& group = placement.of(each.role);
          const bool known = std::any_of(found.begin(), found.end(), [&](const ChunkOrders& other) {
            return other.collective == each.collective && other.group == group;
          });
          auto orders = known ? std::vector<OrderShare>{} : best_orders(each, group, design.bandwidth_gbps);
          if (!orders.empty()) found.push_back({each.collective, group, std::move(orders)});
        }
  }
  return found;
}

Design solve(const Options& options, DesignProblem& problem) {
  if (options.overlap) {
    const auto [workload, placement] = placed(options, options.workloads.front());
    return solve_overlapped(problem, step_graph(workload, placement, options.network, options.step));
  }
  return options.link_gbps.empty() ? ranvier::solve(problem) : solve_discrete(problem, options.link_gbps);
}

}  // namespace ranvier::design
