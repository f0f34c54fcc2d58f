#include <fmt/format.h>

#include <bit>
#include <utility>
#include <vector>

#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

// How many times longer a dimension takes with a cable or NIC less.
double slower(const NetworkShape& shape, std::size_t dimension, int nics) {
  const auto& [block, size, tier] = shape.dimensions[dimension];
  const auto refuse = [&](const char* why) {
    throw Error(ErrorKind::usage,
                fmt::format("dimension {} of {} does not survive a failure: {}", dimension, to_string(shape), why));
  };
  switch (block) {
    case Block::ring:
      if (size < 3) refuse("two NPUs have one cable; make it a switch");
      return 2;
    case Block::fully_connected:
      if (size < 3) refuse("two NPUs have one cable; make it a switch");
      // The bytes of the missing link go over each of n-2 others, twice: 1 + 1/(n-2) on each.
      return static_cast<double>(size - 1) / (size - 2);
    case Block::switched:
      if (nics < 2) refuse("an NPU has one NIC on it; say how many more with --survive-failure NICS");
      return static_cast<double>(nics) / (nics - 1);
  }
  return 1;
}

// Of each dimension over which anything is sent: how many times longer it takes then.
std::vector<std::pair<std::size_t, double>> failures(const std::vector<TrafficTerm>& terms, const NetworkShape& shape,
                                                     int nics) {
  std::uint32_t used = 0;
  for (const TrafficTerm& term : terms)
    for (const Load& load : term.loads) {
      if (!(load.bytes > 0)) continue;
      used |= load.dimensions;
      if (!std::has_single_bit(load.dimensions))
        throw Error(ErrorKind::usage,
                    "mixed chunk orders load several dimensions together, and a failure slows one of them: leave out "
                    "--survive-failure, or the orders");
    }
  std::vector<std::pair<std::size_t, double>> all;
  for (std::size_t failed = 0; failed < shape.dimensions.size(); ++failed)
    if ((used >> failed & 1) != 0) all.emplace_back(failed, slower(shape, failed, nics));
  return all;
}

void add_slower(const std::vector<TrafficTerm>& terms, std::size_t failed, double factor,
                std::vector<TrafficTerm>& result) {
  for (TrafficTerm term : terms) {
    for (Load& load : term.loads)
      if ((load.dimensions >> failed & 1) != 0) load.bytes *= factor;
    result.push_back(std::move(term));
  }
}

}  // namespace

StepTime with_any_failure(const StepTime& step, const NetworkShape& shape, int nics) {
  StepTime result{.dimensions = step.dimensions, .terms = {}, .cases = {}};
  for (const auto& [failed, factor] : failures(step.terms, shape, nics)) {
    const std::size_t first = result.terms.size();
    add_slower(step.terms, failed, factor, result.terms);
    for (const StepCase& one : step.cases) {
      StepCase with{.constant_ns = one.constant_ns, .weights = std::vector<double>(first, 0)};
      with.weights.insert(with.weights.end(), one.weights.begin(), one.weights.end());
      result.cases.push_back(std::move(with));
    }
  }
  if (result.cases.empty()) return step;
  for (StepCase& one : result.cases) one.weights.resize(result.terms.size(), 0);
  return result;
}

StepGraph with_any_failure(const StepGraph& graph, const NetworkShape& shape, int nics) {
  StepGraph result{.dimensions = graph.dimensions, .terms = {}, .nodes = {}};
  StepGraph::Node end;
  for (const auto& [failed, factor] : failures(graph.terms, shape, nics)) {
    const std::size_t first_term = result.terms.size();
    const std::size_t first_node = result.nodes.size();
    add_slower(graph.terms, failed, factor, result.terms);
    for (StepGraph::Node node : graph.nodes) {
      if (node.term) *node.term += first_term;
      for (std::size_t& each : node.after) each += first_node;
      result.nodes.push_back(std::move(node));
    }
    end.after.push_back(result.nodes.size() - 1);
  }
  if (end.after.empty()) return graph;
  result.nodes.push_back(std::move(end));
  return result;
}

}  // namespace ranvier
