#include <algorithm>
#include <cmath>

#include "plan/collective_loads.h"
#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

class GraphBuilder {
 public:
  GraphBuilder(const Placement& placement, const NetworkShape& shape, const StepOptions& options)
      : placement_(placement), shape_(shape), options_(options) {
    graph_.dimensions = shape.dimensions.size();
  }

  // Something that the NPU itself does, or waits for.
  void compute(double ns) { computing_ = {add({.constant_ns = ns, .term = {}, .after = computing_})}; }
  void wait_for(const Communication& communication) {
    if (auto node = collective(communication)) {
      node->after = computing_;
      computing_ = {add(std::move(*node))};
    }
  }
  // Something that goes on beside it.
  void start(const Communication& communication) {
    if (auto node = collective(communication)) {
      node->after = computing_;
      for (const std::size_t before : sending_) node->after.push_back(before);
      sending_ = {add(std::move(*node))};
    }
  }

  StepGraph finish() {
    auto last = computing_;
    for (const std::size_t before : sending_) last.push_back(before);
    add({.constant_ns = 0, .term = {}, .after = std::move(last)});
    return std::move(graph_);
  }

 private:
  using Last = std::vector<std::size_t>;  // one node, or none yet

  std::size_t add(StepGraph::Node node) {
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.size() - 1;
  }

  std::optional<StepGraph::Node> collective(const Communication& communication) {
    auto cost = plan::collective_cost(communication, placement_.of(communication.role), shape_, options_);
    if (cost.term.loads.empty()) return std::nullopt;
    // Collectives that are alike share a term.
    const auto same = std::find_if(graph_.terms.begin(), graph_.terms.end(), [&](const TrafficTerm& term) {
      return std::equal(
          term.loads.begin(), term.loads.end(), cost.term.loads.begin(), cost.term.loads.end(),
          [](const Load& a, const Load& b) { return a.dimensions == b.dimensions && a.bytes == b.bytes; });
    });
    const auto term = static_cast<std::size_t>(same - graph_.terms.begin());
    if (same == graph_.terms.end()) graph_.terms.push_back(std::move(cost.term));
    return StepGraph::Node{.constant_ns = cost.latency_ns, .term = term};
  }

  const Placement& placement_;
  const NetworkShape& shape_;
  const StepOptions& options_;
  StepGraph graph_;
  Last computing_;
  Last sending_;
};

}  // namespace

StepGraph step_graph(const Workload& workload, const Placement& placement, const NetworkShape& shape,
                     const StepOptions& options) {
  GraphBuilder graph(placement, shape, options);
  graph.compute(workload.idle_ns);
  for (const Layer& layer : workload.layers) {
    graph.compute(layer.forward.compute_ns);
    for (const auto& each : layer.forward.communications) graph.wait_for(each);
  }
  for (std::size_t i = workload.layers.size(); i-- > 0;) {
    const Layer& layer = workload.layers[i];
    graph.compute(layer.weight_gradient.compute_ns);
    for (const auto& each : layer.weight_gradient.communications) graph.start(each);
    graph.compute(layer.input_gradient.compute_ns);
    for (const auto& each : layer.input_gradient.communications) graph.wait_for(each);
  }
  return graph.finish();
}

StepCase longest_path(const StepGraph& graph, std::span<const double> bandwidth_gbps) {
  StepTime one{.dimensions = graph.dimensions, .terms = graph.terms, .cases = {{}}};
  std::vector<double> term_ns;
  for (std::size_t k = 0; k < graph.terms.size(); ++k) {
    one.cases[0].weights.assign(graph.terms.size(), 0);
    one.cases[0].weights[k] = 1;
    term_ns.push_back(step_ns(one, bandwidth_gbps));
  }
  // Nodes stand behind those that they wait for.
  std::vector<double> end(graph.nodes.size());
  std::vector<std::optional<std::size_t>> before(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto& node = graph.nodes[i];
    for (const std::size_t each : node.after)
      if (!before[i] || end[each] > end[*before[i]]) before[i] = each;
    end[i] = (before[i] ? end[*before[i]] : 0) + node.constant_ns + (node.term ? term_ns[*node.term] : 0);
  }
  StepCase path{.weights = std::vector<double>(graph.terms.size())};
  for (std::optional<std::size_t> at = graph.nodes.size() - 1; at; at = before[*at]) {
    path.constant_ns += graph.nodes[*at].constant_ns;
    if (graph.nodes[*at].term) path.weights[*graph.nodes[*at].term] += 1;
  }
  return path;
}

Design solve_overlapped(DesignProblem& problem, const StepGraph& graph) {
  constexpr int most_paths = 200;
  problem.step = {.dimensions = graph.dimensions, .terms = graph.terms, .cases = {}};
  const std::vector<double> equal(graph.dimensions, 1);
  problem.step.cases.push_back(longest_path(graph, equal));
  for (int i = 0; i < most_paths; ++i) {
    Design design = solve(problem);
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
