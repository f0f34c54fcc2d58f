// Designs beyond one convex problem: steps that overlap, links that come in whole numbers, networks that survive a
// failure, every shape of a size, and time against cost.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ranvier/design.h"
#include "ranvier/execution_trace.h"
#include "ranvier/network.h"
#include "ranvier/workload.h"

namespace ranvier {

// Solves the problem, which it may change on the way, as solve does, solve_overlapped or solve_discrete.
using DesignSolver = std::function<Design(DesignProblem&)>;

// ---- Overlap: a step as a graph of what waits for what.

struct StepGraph {
  struct Node {
    double constant_ns = 0;
    std::optional<std::size_t> term = {};  // of `terms`: a collective, which takes as long as its slowest load
    double times = 1;                      // how often it does, one behind the other
    std::vector<std::size_t> after = {};   // nodes before this one
  };
  std::size_t dimensions = 0;
  std::vector<TrafficTerm> terms = {};
  std::vector<Node> nodes = {};
};

// Computing is one chain, and so are the collectives of weight gradients, each of which waits for its layer; what
// tensor and expert groups exchange, computing waits for.
StepGraph step_graph(const Workload&, const Placement&, const NetworkShape&, const StepOptions& = {});

// The same of a trace, by its own graph. Beside that one thing is computed at a time, and of the ranks that span the
// same dimensions one collective, one message out and one in, in the order of the operations.
StepGraph step_graph(const ExecutionTrace&, const NetworkShape&, const StepOptions& = {});
// Which dimensions each of its operations spans; nothing for those that do not communicate. Throws Error{usage} where
// ranks are no block of the network, or nothing says which they are.
std::vector<GroupSizes> place(const ExecutionTrace&, const NetworkShape&);

// Steps that matter alike much: each with its weight, one after another, whose longest ways add up.
StepGraph weighted_sum(std::span<const StepGraph>, std::span<const double> weights);

// The same without overlap: one node after another. One case.
StepTime one_after_another(const StepGraph&);

// The longest way through the graph, as a case of its terms.
StepCase longest_path(const StepGraph&, std::span<const double> bandwidth_gbps);

// `problem.step` is replaced by the graph: solved for a few paths, then for those and the longest path of that optimum,
// until no path is longer than proven (J. E. Kelley: The cutting-plane method for solving convex programs. 1960).
// The paths that were needed are left in problem.step. `solver`: of those paths, as they stand in problem.step.
Design solve_overlapped(
    DesignProblem& problem, const StepGraph&,
    const DesignSolver& solver = [](DesignProblem& paths) { return solve(paths); });

// ---- Orders of dimensions.

// What share of a collective's chunks takes the dimensions in which order.
struct OrderShare {
  std::vector<std::size_t> dimensions = {};
  double share;
};
// The mix with which a collective ends first on these bandwidths, by linear programming over all orders of the (at most
// 6) dimensions that the group spans; orders without a share are left out. An all_reduce takes each forth and then
// back. None of collectives that send the same in any order.
std::vector<OrderShare> best_orders(const Communication&, const GroupSizes&, std::span<const double> bandwidth_gbps);

// ---- Failures.

// The same step if any one cable or NIC of any one dimension may be missing: the worst of that. Of a ring's two ways
// one is left; between fully connected NPUs the bytes of the missing link go over all others, over one in between; of
// the `nics` of an NPU on a switch one is missing. Throws Error{usage} where nothing is left: pairs, and a single NIC;
// and for mixed chunk orders.
StepTime with_any_failure(const StepTime&, const NetworkShape&, int nics);
// The longest way if any may be missing from its beginning to its end.
StepGraph with_any_failure(const StepGraph&, const NetworkShape&, int nics);

// ---- Whole links.

// Bandwidths that are whole multiples of `unit_gbps`, by dimension (0: any number). Branch and bound (A. H. Land,
// A. G. Doig: An automatic method of solving discrete programming problems. Econometrica 28 (1960)) over the convex
// problem, to a relative gap of 1e-6. Constraints hold as they stand: an equality may have no solution. The certificate
// is that of any bandwidths of a link or more: it proves less than lower_bound, which rests on the search.
Design solve_discrete(const DesignProblem&, const std::vector<double>& unit_gbps);

// ---- Shapes.

struct ShapeSearch {
  std::int64_t npus = 0;
  int fewest_dimensions = 1;
  int most_dimensions = 4;
  std::vector<Block> blocks = {Block::ring, Block::fully_connected, Block::switched};
  std::size_t most_shapes = 100'000;
};
// Every ordered split of the NPUs into dimensions of at least 2, with every choice of blocks. Throws Error{usage} for
// more than most_shapes.
std::vector<NetworkShape> shapes(const ShapeSearch&);

// ---- Time against cost.

struct ParetoPoint {
  double cost_usd;
  double time_ns;
  std::vector<double> bandwidth_gbps = {};
};
// The least times, by `solver`, for `points` costs between a thirtieth of what the fastest design costs and that.
// Budgets that are to be spent become limits; all other constraints hold at each point. Costs that they rule out are
// left out, and so are those that make nothing faster than a lower one.
std::vector<ParetoPoint> pareto_front(
    const DesignProblem&, std::size_t points,
    const DesignSolver& solver = [](DesignProblem& problem) { return solve(problem); });
// As a drawing, both axes logarithmic.
std::string pareto_svg(const std::vector<ParetoPoint>&, const std::string& title);

}  // namespace ranvier
