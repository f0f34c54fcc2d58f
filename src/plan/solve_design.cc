// The best bandwidths: the convex form solved, its optimum made the cheapest of its kind, and its bound carried back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "plan/convex_form.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

using Eigen::Index;
using Eigen::VectorXd;
using plan::ConvexForm;
using Status = solver::LinearSolution::Status;

constexpr double certified_gap = 1e-6;

std::vector<double> to_gbps(const ConvexForm& form, const VectorXd& x) {
  std::vector<double> result(static_cast<std::size_t>(form.dimensions));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto variable = static_cast<Index>(i);
    result[i] = std::max(0.0, x(variable) * form.scale * form.units(variable));
  }
  return result;
}

// Fills in what follows from bandwidths.
void evaluate(const DesignProblem& problem, std::vector<double> bandwidth_gbps, Design& design) {
  design.bandwidth_gbps = std::move(bandwidth_gbps);
  design.time_ns = step_ns(problem.step, design.bandwidth_gbps);
  design.cost_usd = 0;
  for (std::size_t i = 0; i < design.bandwidth_gbps.size(); ++i)
    design.cost_usd += design.bandwidth_gbps[i] * problem.dollars_per_gbps[i];
  design.objective =
      problem.objective == Objective::time ? design.time_ns : design.time_ns * design.cost_usd / time_cost_scale;
}

// Whatever the constraints leave is as fast as any: the cheapest.
Design without_traffic(const ConvexForm& form) {
  Design design;
  evaluate(form.problem, to_gbps(form, plan::minimise(form.allowed, form.costs()).x), design);
  design.lower_bound = design.objective;
  design.marginal_ns_per_gbps.assign(design.bandwidth_gbps.size(), 0);
  return design;
}

// Where free bandwidths carry everything time x cost is nothing: the fastest of them. None where something has to go
// over bandwidth that costs.
std::optional<Design> for_nothing(const DesignProblem& problem) {
  const std::size_t n = problem.dollars_per_gbps.size();
  const auto costless = std::ranges::count(problem.dollars_per_gbps, 0.0);
  if (problem.objective != Objective::time_cost || n != problem.step.dimensions || costless == 0 ||
      costless == std::ssize(problem.dollars_per_gbps))
    return std::nullopt;
  DesignProblem free = problem;
  free.objective = Objective::time;
  for (std::size_t i = 0; i < n; ++i) {
    if (problem.dollars_per_gbps[i] == 0) continue;
    Constraint none{
        .text = "nothing that costs", .coefficients = std::vector<double>(n, 0), .relation = Relation::equal};
    none.coefficients[i] = 1;
    free.constraints.push_back(std::move(none));
  }
  try {
    Design design = solve(free);
    design.objective = design.lower_bound = 0;
    design.certificate.scale = 0;
    return design;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return std::nullopt;
  }
}

// Whether the step consists of nothing but what it sends, so that bandwidths that are twice as many take half as long:
// time x cost does not depend on how many there are, but on their proportions alone.
bool goes_by_proportions(const DesignProblem& problem) {
  return problem.objective == Objective::time_cost &&
         std::ranges::all_of(problem.step.cases, [](const StepCase& one) { return one.constant_ns == 0; });
}

// What these bandwidths may be multiplied by if all constraints are to hold that now do.
struct Multiples {
  double least = 0;
  double most = std::numeric_limits<double>::infinity();
};
Multiples allowed_multiples(const DesignProblem& problem, const std::vector<double>& bandwidth_gbps) {
  Multiples result;
  for (const Constraint& constraint : problem.constraints) {
    double sum = 0;
    for (std::size_t i = 0; i < bandwidth_gbps.size(); ++i) sum += constraint.coefficients[i] * bandwidth_gbps[i];
    const double reached = constraint.limit / sum;
    if (!(reached > 0) || !std::isfinite(reached)) continue;  // whatever the multiple is
    const bool is_above = (constraint.relation == Relation::at_most) == (sum > 0);
    if (constraint.relation == Relation::equal || !is_above) result.least = std::max(result.least, reached);
    if (constraint.relation == Relation::equal || is_above) result.most = std::min(result.most, reached);
  }
  return result;
}

// Where a step goes by proportions, and all bandwidths may shrink together to nothing, there is no cheapest optimum: of
// all multiples of the best proportions the fastest is given. None where that is not so.
std::optional<Design> at_any_scale(const DesignProblem& problem) {
  const auto& dollars = problem.dollars_per_gbps;
  const bool may_be_nothing = std::ranges::all_of(problem.constraints, [](const Constraint& each) {
    return each.relation == Relation::equal ? each.limit == 0
                                            : each.limit * (each.relation == Relation::at_most ? 1 : -1) >= 0;
  });
  const bool all_cost = !dollars.empty() && std::ranges::all_of(dollars, [](double each) { return each > 0; });
  const bool sends = std::isinf(step_ns(problem.step, std::vector<double>(problem.step.dimensions)));
  if (!goes_by_proportions(problem) || !may_be_nothing || !all_cost || !sends) return std::nullopt;
  // The least time for so much money; only limits of 0 are about proportions.
  DesignProblem priced = problem;
  priced.objective = Objective::time;
  std::erase_if(priced.constraints, [](const Constraint& each) { return each.limit != 0; });
  const double spent = *std::ranges::max_element(dollars);  // by which bandwidths are near 1
  priced.constraints.push_back(
      {.text = "some bandwidth", .coefficients = dollars, .relation = Relation::equal, .limit = spent});
  Design design;
  try {
    design = solve(priced);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return std::nullopt;  // refused in the words of its own constraints
  }
  const double most = allowed_multiples(problem, design.bandwidth_gbps).most;
  if (!std::isfinite(most))
    throw Error(ErrorKind::usage,
                "nothing limits bandwidth, and of a step without computing time x cost is the same however much of it "
                "there is; add a budget");
  auto gbps = design.bandwidth_gbps;
  for (double& each : gbps) each *= most;
  evaluate(problem, std::move(gbps), design);
  design.certificate.scale *= spent / time_cost_scale;
  design.lower_bound = std::min(design.lower_bound * spent / time_cost_scale, design.objective);
  for (double& each : design.marginal_ns_per_gbps) each /= most * most;
  design.any_scale = true;
  return design;
}

// With cost(x) = 1 at the optimum that was found, the least 1 / (2 - cost(x)), which rises with the cost, plus a
// penalty for the case that is latest. So steep a one is exact: the cheapest is not late. What each case may transfer
// for is given up by next to nothing, so that something lies between the optimum and what is late.
solver::MinMaxProgram cost_of_as_fast(const ConvexForm& form, const solver::MinMaxSolution& found) {
  constexpr double given_up = 1e-10;
  constexpr double penalty = 1e6;
  const solver::MinMaxProgram& fast = form.program;
  const Index n = found.x.size();
  const Index cases = fast.constant.size();
  const auto wider = [](const Eigen::MatrixXd& matrix, Index rows, Index columns) {
    Eigen::MatrixXd result = Eigen::MatrixXd::Zero(rows, columns);
    result.topLeftCorner(matrix.rows(), matrix.cols()) = matrix;
    return result;
  };
  solver::MinMaxProgram cheap = fast;
  const VectorXd steep = penalty / (found.value - fast.constant.array()).max(1e-13 * found.value);
  cheap.terms.push_back({{n, 1.0}});
  cheap.constant = VectorXd::Zero(cases + 1);
  cheap.constant.head(cases).setConstant(-penalty * (1 + given_up));
  cheap.weights = wider(steep.asDiagonal() * fast.weights, cases + 1, fast.weights.cols() + 1);
  cheap.weights.rightCols(1).setOnes();
  cheap.at_most = wider(fast.at_most, fast.at_most.rows(), n + 1);
  cheap.equal = wider(fast.equal, fast.equal.rows() + 1, n + 1);
  const VectorXd costs = form.kept(form.costs());
  cheap.equal.bottomLeftCorner(1, n) = costs.transpose() / costs.dot(found.x);
  cheap.equal(fast.equal.rows(), n) = 1;
  cheap.equal_to.conservativeResize(fast.equal.rows() + 1);
  cheap.equal_to(fast.equal.rows()) = 2;
  return cheap;
}

// Terms of cases that do not bind may take longer in one optimum than in another: variables of the cheapest. None where
// there is nothing to gain, or rounding is in the way.
std::optional<VectorXd> as_fast_for_less(const ConvexForm& form, const solver::MinMaxSolution& found) {
  const VectorXd costs = form.kept(form.costs());
  const double spent = costs.dot(found.x);
  if (form.priced || form.program.constant.size() < 2 || !(spent > 0)) return std::nullopt;
  // From between the optimum and a point inside, where it costs less than twice as much.
  const double far = 0.5 / std::max(1.0, costs.dot(form.start) / spent);
  VectorXd start(found.x.size() + 1);
  start.head(found.x.size()) = found.x + far * (form.start - found.x);
  start(found.x.size()) = 2 - costs.dot(start.head(found.x.size())) / spent;
  // Nothing is proven by it: where rounding hides how good it is, it is taken all the same.
  constexpr solver::Gaps gaps{.wanted = 1e-9, .acceptable = 1e-3};
  constexpr double as_fast = 1 + 1e-9;
  try {
    const VectorXd less = solver::solve(cost_of_as_fast(form, found), start, gaps).x.head(found.x.size());
    return solver::value(form.program, less) <= as_fast * found.value ? std::optional(less) : std::nullopt;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::internal) throw;
    return std::nullopt;  // what was found is an optimum all the same
  }
}

// Several optima differ only in bandwidth that no term waits for, where the time of each term is the same in all of
// them, since v / b is strictly convex. So a linear program that keeps those times finds the cheapest.
VectorXd cheapest(const ConvexForm& form, const VectorXd& x) {
  VectorXd needed = VectorXd::Zero(form.bandwidths);
  for (const auto& term : form.terms) {
    double slowest = 0;
    for (const auto& load : term.loads) slowest = std::max(slowest, load.amount / x(load.variable));
    for (const auto& load : term.loads) needed(load.variable) = std::max(needed(load.variable), load.amount / slowest);
  }
  // Beyond what is needed, so that this holds to the last digit however little of it there is.
  plan::Region region = form.allowed;
  for (plan::Row& row : region.rows) row.limit -= row.coefficients.dot(needed);
  const auto found = plan::minimise(region, form.costs());
  return found.status == Status::optimal ? VectorXd(needed + found.x) : x;
}

// -dT/db_i with the weights of the optimum; the derivative of the least time, where time is the objective, by the
// envelope theorem.
std::vector<double> marginal(const ConvexForm& form, const solver::MinMaxSolution& found,
                             const std::vector<double>& gbps) {
  std::vector<double> result(gbps.size(), 0);
  for (std::size_t k = 0; k < form.terms.size(); ++k)
    for (std::size_t l = 0; l < form.terms[k].loads.size(); ++l) {
      const auto& load = form.terms[k].loads[l];
      std::uint32_t dimensions = load.variable < form.dimensions ? std::uint32_t{1} << load.variable : 0;
      for (const auto& [sum, variable] : form.sums)
        if (variable == load.variable) dimensions = sum;
      double bandwidth = 0;
      for (std::size_t i = 0; i < gbps.size(); ++i)
        if ((dimensions >> i & 1) != 0) bandwidth += gbps[i];
      const double bytes =
          found.load_weights[k][l] * load.amount * form.units(load.variable) * form.scale * form.time_scale;
      for (std::size_t i = 0; i < gbps.size(); ++i)
        if ((dimensions >> i & 1) != 0) result[i] += bytes / (bandwidth * bandwidth);
    }
  return result;
}

}  // namespace

Design solve(const DesignProblem& problem) {
  if (auto design = for_nothing(problem)) return *design;
  if (auto design = at_any_scale(problem)) return *design;
  const ConvexForm form = plan::convex_form(problem);
  if (form.terms.empty()) return without_traffic(form);
  const auto found = solver::solve(form.program, form.start);

  VectorXd x = form.with_pinned(found.x);
  if (form.priced) x = (x.head(form.bandwidths) / x(form.bandwidths)).eval();
  Design design;
  evaluate(problem, to_gbps(form, x), design);
  // Of those that cost alike, too, it is a corner, where the barrier's point between corners depends on its rounding.
  const auto take_cheapest_like = [&](const VectorXd& of_these_times) {
    Design cheap;
    evaluate(problem, to_gbps(form, cheapest(form, of_these_times)), cheap);
    if (cheap.cost_usd <= design.cost_usd * (1 + 1e-9) && cheap.time_ns <= design.time_ns * (1 + 1e-8)) design = cheap;
  };
  take_cheapest_like(x);
  if (const auto less = as_fast_for_less(form, found)) take_cheapest_like(form.with_pinned(*less));
  // Less of everything is as good there, and cheaper.
  if (goes_by_proportions(problem)) {
    auto gbps = design.bandwidth_gbps;
    const double least = allowed_multiples(problem, gbps).least;
    for (double& each : gbps) each *= least;
    if (least < 1 - certified_gap) evaluate(problem, std::move(gbps), design);
  }

  design.lower_bound =
      found.lower_bound * form.time_scale * (form.priced ? form.scale * form.cost_scale / time_cost_scale : 1);
  if (!(std::abs(design.objective - design.lower_bound) <= certified_gap * std::abs(design.objective)))
    throw Error(ErrorKind::internal,
                fmt::format("an objective of {} has a bound of {}, which proves nothing; report it with its input",
                            design.objective, design.lower_bound));
  // Bandwidths meet equations up to rounding, and may be better than the best by as much.
  design.lower_bound = std::min(design.lower_bound, design.objective);
  design.marginal_ns_per_gbps = marginal(form, found, design.bandwidth_gbps);
  design.certificate = plan::certificate(form, found);
  return design;
}

}  // namespace ranvier
