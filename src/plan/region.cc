#include "plan/region.h"

#include <algorithm>
#include <cmath>

namespace ranvier::plan {
namespace {

using Eigen::Index;
using Eigen::VectorXd;
using Status = solver::LinearSolution::Status;

constexpr double zero = 1e-8;  // regions are scaled so that their bandwidths are near 1

// Constraints on (x, s) for a slack s beside the variables; `slack` says by how much of s each inequality is to be
// kept.
template <class Slack>
solver::LinearProgram program(const Region& region, Index extra, Slack slack) {
  const auto equations =
      std::count_if(region.rows.begin(), region.rows.end(), [](const Row& row) { return row.equal; });
  const Index columns = region.variables + extra;
  solver::LinearProgram result;
  result.objective = VectorXd::Zero(columns);
  result.equal = Eigen::MatrixXd::Zero(equations, columns);
  result.equal_to.resize(equations);
  result.at_most = Eigen::MatrixXd::Zero(static_cast<Index>(region.rows.size()) - equations, columns);
  result.limit.resize(result.at_most.rows());
  Index equation = 0;
  Index inequality = 0;
  for (const Row& row : region.rows) {
    if (row.equal) {
      result.equal.row(equation).head(region.variables) = row.coefficients;
      result.equal_to(equation++) = row.limit;
      continue;
    }
    result.at_most.row(inequality).head(region.variables) = row.coefficients;
    if (extra > 0) result.at_most(inequality, region.variables) = slack(row);
    result.limit(inequality++) = row.limit;
  }
  return result;
}

void append(solver::LinearProgram& program, const VectorXd& coefficients, double limit) {
  const Index last = program.at_most.rows();
  program.at_most.conservativeResize(last + 1, Eigen::NoChange);
  program.limit.conservativeResize(last + 1);
  program.at_most.row(last) = coefficients;
  program.limit(last) = limit;
}

// Whether they have a solution, up to rounding, of whatever sign.
bool equations_agree(const Region& region) {
  const auto linear = program(region, 0, [](const Row&) { return 0.0; });
  const VectorXd nearest = linear.equal.completeOrthogonalDecomposition().solve(linear.equal_to);
  return (linear.equal * nearest - linear.equal_to).cwiseAbs().maxCoeff() <= 1e-13;
}

}  // namespace

solver::LinearSolution minimise(const Region& region, const VectorXd& objective) {
  auto linear = program(region, 0, [](const Row&) { return 0.0; });
  linear.objective = objective;
  return solver::solve(linear);
}

std::vector<std::size_t> conflict(const Region& region) {
  const auto feasible = [&](const std::vector<std::size_t>& chosen) {
    Region part{.rows = {}, .variables = region.variables};
    for (const std::size_t row : chosen) part.rows.push_back(region.rows[row]);
    return minimise(part, VectorXd::Zero(region.variables)).status != Status::infeasible;
  };
  std::vector<std::size_t> left(region.rows.size());
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = i;
  if (feasible(left)) return {};
  // What can be left out without making the rest possible does not belong to the conflict.
  for (std::size_t i = 0; i < left.size();) {
    auto without = left;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    if (feasible(without))
      ++i;
    else
      left = std::move(without);
  }
  return left;
}

std::vector<bool> pinned_to_zero(const Region& region) {
  std::vector<bool> pinned;
  for (Index i = 0; i < region.variables; ++i) {
    const auto most = minimise(region, -VectorXd::Unit(region.variables, i));
    pinned.push_back(most.status == Status::optimal && most.x(i) <= zero);
  }
  return pinned;
}

Region with_implied_equations(Region region) {
  for (bool more = true; more;) {
    more = false;
    VectorXd common = VectorXd::Zero(region.variables);  // the mean of points of the region is one
    std::vector<Row*> implied;
    for (Row& row : region.rows) {
      if (row.equal) continue;
      const auto least = minimise(region, row.coefficients);
      if (least.status != Status::optimal || row.limit - least.value > zero * row.coefficients.cwiseAbs().maxCoeff())
        continue;
      common += least.x;
      implied.push_back(&row);
    }
    for (Row* const row : implied) row->equal = more = true;
    if (!more || equations_agree(region)) continue;
    for (Row* const row : implied) row->limit = row->coefficients.dot(common) / static_cast<double>(implied.size());
  }
  return region;
}

std::optional<VectorXd> point_inside(const Region& region, const std::vector<bool>& pinned) {
  // Of what is not pinned: beside that a row may be of small numbers only.
  auto linear = program(region, 1, [&](const Row& row) {
    double most = 0;
    for (Index i = 0; i < region.variables; ++i)
      if (!pinned[static_cast<std::size_t>(i)]) most = std::max(most, std::abs(row.coefficients(i)));
    return most;
  });
  const Index slack = region.variables;
  for (Index i = 0; i < region.variables; ++i) {
    VectorXd row = VectorXd::Unit(slack + 1, i);
    if (!pinned[static_cast<std::size_t>(i)]) row = VectorXd::Unit(slack + 1, slack) - row;  // s <= x
    append(linear, row, 0);
  }
  append(linear, VectorXd::Unit(slack + 1, slack), 1);
  linear.objective(slack) = -1;
  const auto found = solver::solve(linear);
  if (found.status != Status::optimal || found.x(slack) <= zero * 1e-2) return std::nullopt;
  return found.x.head(region.variables);
}

std::vector<Index> independent_rows(const Eigen::MatrixXd& matrix) {
  std::vector<Index> chosen;
  Eigen::MatrixXd basis(0, matrix.cols());
  for (Index row = 0; row < matrix.rows(); ++row) {
    Eigen::MatrixXd more(basis.rows() + 1, matrix.cols());
    more << basis, matrix.row(row).normalized();
    Eigen::FullPivLU<Eigen::MatrixXd> decomposition(more);
    decomposition.setThreshold(1e-10);
    if (decomposition.rank() <= basis.rows()) continue;
    basis = std::move(more);
    chosen.push_back(row);
  }
  return chosen;
}

}  // namespace ranvier::plan
