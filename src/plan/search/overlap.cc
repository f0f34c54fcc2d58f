// Steps as graphs, and the bandwidths for which their longest way is the shortest.
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>

#include "plan/collective_loads.h"
#include "plan/trace_groups.h"
#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

// A graph whose collectives share terms where they are alike.
class Graph {
 public:
  Graph(const NetworkShape& shape, const StepOptions& options) : shape_(shape), options_(options) {
    graph_.dimensions = shape.dimensions.size();
  }

  std::size_t add(StepGraph::Node node) {
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.size() - 1;
  }

  // Takes no time in a group of one.
  StepGraph::Node collective(const Communication& communication, const GroupSizes& group, std::string_view whose) {
    auto cost = plan::collective_cost(communication, group, shape_, options_, whose);
    if (cost.term.loads.empty()) return {};
    Proportions loads;
    for (const Load& load : cost.term.loads) loads.emplace_back(load.dimensions, load.bytes);
    const auto [same, is_new] = terms_.try_emplace(std::move(loads), graph_.terms.size());
    if (is_new) graph_.terms.push_back(std::move(cost.term));
    return {.constant_ns = cost.latency_ns, .term = same->second};
  }

  // With an end behind all that nothing waits for.
  StepGraph finish() {
    std::vector<bool> is_waited_for(graph_.nodes.size());
    for (const auto& node : graph_.nodes)
      for (const std::size_t each : node.after) is_waited_for[each] = true;
    StepGraph::Node end;
    for (std::size_t i = 0; i < is_waited_for.size(); ++i)
      if (!is_waited_for[i]) end.after.push_back(i);
    add(std::move(end));
    return std::move(graph_);
  }

 private:
  using Proportions = std::vector<std::pair<std::uint32_t, double>>;

  const NetworkShape& shape_;
  const StepOptions& options_;
  StepGraph graph_;
  std::map<Proportions, std::size_t> terms_;
};

// Layers: two chains.
class Passes {
 public:
  Passes(double fills, const Placement& placement, const NetworkShape& shape, const StepOptions& options)
      : times_(1 + fills), placement_(placement), graph_(shape, options) {}

  // Something that the NPU itself does, or waits for.
  void compute(double ns) { then({.constant_ns = ns}); }
  void wait_for(const Communication& communication, const Layer& layer) {
    StepGraph::Node node = collective(communication, layer);
    node.constant_ns *= times_;
    node.times = times_;
    then(std::move(node));
  }
  // Something that goes on beside it.
  void start(const Communication& communication, const Layer& layer) {
    StepGraph::Node node = collective(communication, layer);
    if (!node.term) return;
    node.after = computing_;
    node.after.insert(node.after.end(), sending_.begin(), sending_.end());
    sending_ = {graph_.add(std::move(node))};
  }

  StepGraph finish() { return graph_.finish(); }

 private:
  using Last = std::vector<std::size_t>;  // one node, or none yet

  StepGraph::Node collective(const Communication& communication, const Layer& layer) {
    return graph_.collective(communication, placement_.of(communication.role), "layer " + layer.name);
  }

  void then(StepGraph::Node node) {
    node.after = computing_;
    computing_ = {graph_.add(std::move(node))};
  }

  const double times_;
  const Placement& placement_;
  Graph graph_;
  Last computing_;
  Last sending_;
};

GroupSizes all_of(const NetworkShape& shape) {
  GroupSizes sizes;
  for (const auto& dimension : shape.dimensions) sizes.push_back(dimension.size);
  return sizes;
}

void check(Rank rank, const NetworkShape& shape, const Operation& operation) {
  plan::check_rank(rank, shape.npus(), to_string(shape), operation);
}

// Pairs in the dimensions in which the two stand at different places.
GroupSizes crossed(const Operation& operation, const NetworkShape& shape) {
  auto [from, to] = *operation.ends;
  for (const Rank end : {from, to}) check(end, shape, operation);
  GroupSizes sizes;
  for (const auto& dimension : shape.dimensions) {
    sizes.push_back(from % dimension.size == to % dimension.size ? 1 : 2);
    from /= dimension.size;
    to /= dimension.size;
  }
  return sizes;
}

GroupSizes whole_dimensions(const Operation& operation, const NetworkShape& shape) {
  plan::check_dimensions(operation, shape.dimensions.size(), to_string(shape));
  GroupSizes sizes;
  for (std::size_t i = 0; i < shape.dimensions.size(); ++i)
    sizes.push_back(operation.dimensions[i] ? shape.dimensions[i].size : 1);
  return sizes;
}

GroupSizes of_process_group(const ExecutionTrace& trace, const Operation& operation, const NetworkShape& shape) {
  const auto ranks = plan::ranks_of(trace, operation);
  if (ranks.empty()) return all_of(shape);
  for (const Rank rank : ranks) check(rank, shape, operation);
  const auto sizes = group_sizes(ranks, shape);
  if (!sizes)
    throw Error(
        ErrorKind::usage,
        fmt::format("{} is of process group '{}', whose ranks are no block of {}: of each dimension a group has "
                    "some places, and all NPUs that are at those",
                    operation.name, operation.process_group, to_string(shape)));
  return *sizes;
}

}  // namespace

StepGraph step_graph(const Workload& workload, const Placement& placement, const NetworkShape& shape,
                     const StepOptions& options) {
  Passes graph(workload.fills, placement, shape, options);
  graph.compute(workload.idle_ns + bubble_ns(workload));
  for (const Layer& layer : workload.layers) {
    graph.compute(layer.forward.compute_ns);
    for (const auto& each : layer.forward.communications) graph.wait_for(each, layer);
  }
  for (std::size_t i = workload.layers.size(); i-- > 0;) {
    const Layer& layer = workload.layers[i];
    graph.compute(layer.weight_gradient.compute_ns);
    for (const auto& each : layer.weight_gradient.communications) graph.start(each, layer);
    graph.compute(layer.input_gradient.compute_ns);
    for (const auto& each : layer.input_gradient.communications) graph.wait_for(each, layer);
  }
  return graph.finish();
}

std::vector<GroupSizes> place(const ExecutionTrace& trace, const NetworkShape& shape) {
  std::map<std::string, GroupSizes> known{{"", all_of(shape)}};
  std::vector<GroupSizes> placed;
  placed.reserve(trace.operations.size());
  for (const Operation& operation : trace.operations) {
    if (!operation.communication)
      placed.emplace_back();
    else if (operation.ends)
      placed.push_back(crossed(operation, shape));
    else if (operation.process_group.empty() && !operation.dimensions.empty())
      placed.push_back(whole_dimensions(operation, shape));
    else if (const auto found = known.find(operation.process_group); found != known.end())
      placed.push_back(found->second);
    else
      placed.push_back(known[operation.process_group] = of_process_group(trace, operation, shape));
  }
  return placed;
}

StepGraph step_graph(const ExecutionTrace& trace, const NetworkShape& shape, const StepOptions& options) {
  const auto groups = place(trace, shape);
  plan::TraceChains<GroupSizes> chains;
  Graph graph(shape, options);
  for (std::size_t i = 0; i < trace.operations.size(); ++i) {
    const Operation& operation = trace.operations[i];
    StepGraph::Node node{.constant_ns = operation.compute_ns};
    if (operation.communication) {
      Communication all_of_it = *operation.communication;
      // Which goes whole through all dimensions; of a message between unknown ends the innermost is taken.
      if (operation.ends) all_of_it.collective = Collective::neighbor_exchange;
      node = graph.collective(all_of_it, groups[i], operation.name);
    }
    node.after = operation.after;
    if (node.term || node.constant_ns > 0)
      if (const auto before = chains.before(operation, groups[i], i)) node.after.push_back(*before);
    graph.add(std::move(node));
  }
  return graph.finish();
}

StepTime one_after_another(const StepGraph& graph) {
  StepCase all{.weights = std::vector<double>(graph.terms.size())};
  for (const auto& node : graph.nodes) {
    all.constant_ns += node.constant_ns;
    if (node.term) all.weights[*node.term] += node.times;
  }
  return {.dimensions = graph.dimensions, .terms = graph.terms, .cases = {std::move(all)}};
}

StepCase longest_path(const StepGraph& graph, std::span<const double> bandwidth_gbps) {
  const auto term_ns = term_times(graph.terms, bandwidth_gbps);
  // Nodes stand behind those that they wait for.
  std::vector<double> end(graph.nodes.size());
  std::vector<std::optional<std::size_t>> before(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto& node = graph.nodes[i];
    for (const std::size_t each : node.after)
      if (!before[i] || end[each] > end[*before[i]]) before[i] = each;
    end[i] = (before[i] ? end[*before[i]] : 0) + node.constant_ns + (node.term ? node.times * term_ns[*node.term] : 0);
  }
  StepCase path{.weights = std::vector<double>(graph.terms.size())};
  for (std::optional<std::size_t> at = graph.nodes.size() - 1; at; at = before[*at]) {
    path.constant_ns += graph.nodes[*at].constant_ns;
    if (graph.nodes[*at].term) path.weights[*graph.nodes[*at].term] += graph.nodes[*at].times;
  }
  return path;
}

StepGraph weighted_sum(std::span<const StepGraph> graphs, std::span<const double> weights) {
  StepGraph sum{.dimensions = graphs.front().dimensions, .terms = {}, .nodes = {}};
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    const std::size_t first_term = sum.terms.size();
    const std::size_t first_node = sum.nodes.size();
    for (TrafficTerm term : graphs[i].terms) {
      for (Load& load : term.loads) load.bytes *= weights[i];
      sum.terms.push_back(std::move(term));
    }
    for (StepGraph::Node node : graphs[i].nodes) {
      node.constant_ns *= weights[i];
      if (node.term) *node.term += first_term;
      for (std::size_t& each : node.after) each += first_node;
      if (node.after.empty() && first_node > 0) node.after.push_back(first_node - 1);
      sum.nodes.push_back(std::move(node));
    }
  }
  return sum;
}

Design solve_overlapped(DesignProblem& problem, const StepGraph& graph, const DesignSolver& solver) {
  constexpr int most_paths = 200;
  problem.step = {.dimensions = graph.dimensions, .terms = graph.terms, .cases = {}};
  const std::vector<double> equal(graph.dimensions, 1);
  problem.step.cases.push_back(longest_path(graph, equal));
  for (int i = 0; i < most_paths; ++i) {
    Design design = solver(problem);
    problem.step.cases.push_back(longest_path(graph, design.bandwidth_gbps));
    design.time_ns = step_ns(problem.step, design.bandwidth_gbps);
    design.objective =
        problem.objective == Objective::time ? design.time_ns : design.time_ns * design.cost_usd / time_cost_scale;
    // The bound is for some of the paths, and the graph takes as long as any. A path over a dimension that no case used
    // so far takes for ever.
    if (std::isfinite(design.objective) && design.objective - design.lower_bound <= 1e-6 * design.objective)
      return design;
  }
  throw Error(ErrorKind::internal, "200 paths did not settle the critical one; report the workload");
}

}  // namespace ranvier
