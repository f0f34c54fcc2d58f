// A path-following barrier method: S. Boyd, L. Vandenberghe: Convex Optimization (2004), chapter 11; for its speed
// Y. Nesterov, A. Nemirovskii: Interior-Point Polynomial Algorithms in Convex Programming (1994).
//
// With t_k for the time of term k and z for the value, minimise z subject to t_k >= amount_ki / x_i, constant_s +
// weights_s·t <= z, x > 0, and the linear constraints. Terms may be many, variables are few: the barrier is a function
// of x alone, whose t and z are the best ones for it (settling.h), and so has as many unknowns as there are bandwidths.
// A barrier that is minimised over some of its variables stays self-concordant (chapter 5.1.3 there); without that each
// of thousands of terms could only go so far in a step of Newton's, and would hold x back. amount / x is compatible
// with -log x (5.1.2), so that one -log x for each variable is enough for all terms over it. A step takes time linear
// in the terms and cubic only in variables + cases + equations.
//
// Each limit is an equation with a slack of its own, which is a variable like the others. Equations are kept by moving
// within their null space only, so that they hold to the last digit however steep the barrier. Near the end a variable,
// or slack, at zero is 10^9 times as stiff as a free one; so that no basis vector mixes the two, each step takes the
// null space in variables scaled by their stiffness. The prices of equations and limits follow from what is left over,
// in the same measure: free variables tell them best.
//
// The derivatives of the barrier at a point near the central path are the weights and prices of the certificate, which
// is then evaluated for itself: the bound holds however well or badly the iteration went.
#include "plan/solver/min_max.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "plan/solver/settling.h"
#include "ranvier/error.h"

namespace ranvier::solver {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double sharpen = 12;  // how much the barrier weakens from one centre to the next

// The least x with a x = b, or nearest to it.
VectorXd least_solution(const MatrixXd& a, const VectorXd& b) { return a.completeOrthogonalDecomposition().solve(b); }
// Equations in variables divided by `scale`, each of length one: beside one that is many powers of ten longer the
// decomposition would take another one for a repetition of it, up to rounding.
struct ScaledRows {
  MatrixXd rows;
  VectorXd shorter;  // how much each became so

  ScaledRows(const MatrixXd& equal, const VectorXd& scale) : rows(equal * scale.asDiagonal()) {
    shorter = rows.rowwise().norm().cwiseMax(1e-300).cwiseInverse();
    rows = shorter.asDiagonal() * rows;
  }
  // The least change of the variables that adds so much to the equations.
  VectorXd change(const VectorXd& by) const { return least_solution(rows, shorter.cwiseProduct(by)); }
  // The combination of equations that is nearest to a direction.
  VectorXd combination(const VectorXd& direction) const {
    return shorter.cwiseProduct(least_solution(transposed(rows), direction));
  }
};

// Of a unit of each variable.
VectorXd prices(const MinMaxProgram& program, const MinMaxSolution& found) {
  return apply(transposed(program.at_most), found.limit_prices) + apply(transposed(program.equal), found.equal_prices);
}

class Barrier {
 public:
  Barrier(const MinMaxProgram& program, const VectorXd& start) : program_(program), settling_(program) {
    const Index variables = start.size();
    const Index equations = program.equal.rows();
    const Index limits = program.limit.size();
    equal_ = MatrixXd::Zero(equations + limits, variables + limits);
    equal_.topLeftCorner(equations, variables) = program.equal;
    equal_.bottomLeftCorner(limits, variables) = program.at_most;
    equal_.bottomRightCorner(limits, limits).setIdentity();
    equal_to_.resize(equations + limits);
    equal_to_ << program.equal_to, program.limit;
    VectorXd x(variables + limits);
    x << start, program.limit - apply(program.at_most, start);
    // The start keeps the equations as well as a linear program does; the rest is shared out in proportion, so that
    // nothing small becomes negative.
    if (equal_.rows() > 0) x += x.cwiseProduct(ScaledRows(equal_, x).change(equal_to_ - apply(equal_, x)));
    at_.x = std::move(x);
    at_.pressure = VectorXd::Ones(program.constant.size());
    for (const auto& loads : program.terms) complexity_ += static_cast<double>(loads.size());
    complexity_ += static_cast<double>(program.constant.size() + at_.x.size());
  }

  MinMaxSolution solve(const Gaps& gaps) {
    MinMaxSolution best;
    best.lower_bound = -std::numeric_limits<double>::infinity();
    const double start = value(program_, at_.x);
    for (double sharpness = complexity_ / std::max(start, 1e-12);; sharpness *= sharpen) {
      if (!centre(sharpness)) break;
      restore_equations(sharpness);
      MinMaxSolution found = solution(sharpness);
      const bool is_better = best.x.size() == 0 || gap(found) < gap(best) / 2;
      const bool is_enough = gap(best) <= gaps.acceptable;
      if (gap(found) < gap(best) || best.x.size() == 0) best = std::move(found);
      // Beyond this rounding is all that moves.
      if (gap(best) <= gaps.wanted || (is_enough && !is_better)) break;
      if (complexity_ / sharpness < 1e-14 * std::abs(best.value)) break;
    }
    if (best.x.size() == 0 || !(gap(best) <= gaps.acceptable))
      throw Error(
          ErrorKind::internal,
          fmt::format("the design problem was solved to a relative gap of {:.1e} only; report it with its input",
                      best.x.size() == 0 ? 1.0 : gap(best)));
    return best;
  }

 private:
  // Below its bound a value is as far off.
  static double gap(const MinMaxSolution& found) {
    return std::abs(found.value - found.lower_bound) / std::max(std::abs(found.value), 1e-300);
  }

  // What has no part in the equations, as columns, which are of length one in variables divided by `scale`.
  MatrixXd null_space(const VectorXd& scale) const {
    if (equal_.rows() == 0) return scale.asDiagonal();
    const Eigen::HouseholderQR<MatrixXd> decomposition(transposed(MatrixXd(equal_ * scale.asDiagonal())));
    return scale.asDiagonal() * MatrixXd(decomposition.householderQ()).rightCols(scale.size() - equal_.rows());
  }

  // Newton's direction.
  VectorXd direction(const Settling::Curvature& here) const {
    const MatrixXd basis = null_space(here.scale());
    const MatrixXd basis_transposed = transposed(basis);
    const MatrixXd matrix = times(times(basis_transposed, here.xx), basis);
    const VectorXd right = -apply(basis_transposed, at_.gradient);
    const Eigen::PartialPivLU<MatrixXd> decomposition(matrix);
    VectorXd solved = decomposition.solve(right);
    // What is left over, solved for again: without it stiff unknowns are right to all digits and loose ones beside them
    // to none, so that the direction leads nowhere (R. D. Skeel: Iterative refinement implies numerical stability for
    // Gaussian elimination. Mathematics of Computation 35 (1980)).
    for (int i = 0; i < 2; ++i) solved += decomposition.solve(VectorXd(right - apply(matrix, solved)));
    return apply(basis, solved);
  }

  // Newton's method from where we are to the centre of this sharpness. Steps are chosen by slopes, not by values, whose
  // differences rounding hides: at least the damped step 1 / (1 + decrement), which self-concordance makes safe. False
  // where rounding lets it get no further.
  bool centre(double sharpness) {
    at_ = settling_.settled(std::move(at_.x), at_.pressure, sharpness);
    Decrements decrements;
    for (int i = 0; i < most_steps_to_a_centre; ++i) {
      const Settling::Curvature here = settling_.curvature(at_);
      const VectorXd way = direction(here);
      const VectorXd shift = apply(here.pressure, way);
      const double slope = at_.gradient.dot(way);
      if (!std::isfinite(slope)) return false;
      const double decrement = std::sqrt(std::max(0.0, -slope));
      if (decrement < 1e-6 || decrements.stall(decrement)) return true;
      const double safe = decrement < 0.25 ? 1 : 1 / (1 + decrement);
      const auto there = [&](double step) -> std::optional<Settling::Point> {
        VectorXd x = at_.x + step * way;
        if (!(x.array() > 0).all()) return std::nullopt;
        return settling_.settled(std::move(x), (at_.pressure + step * shift).cwiseMax(0.1 * at_.pressure), sharpness);
      };
      double step = 1;
      auto next = there(step);
      while (step > safe && !(next && next->gradient.dot(way) <= 0.1 * decrement * decrement)) {
        step = std::max(safe, step / 2);
        next = there(step);
      }
      for (; !next; next = there(step)) {
        step /= 2;
        if (step < 1e-12) return false;
      }
      at_ = std::move(*next);
      if (decrement < 1e-3) return true;  // squared by the step
    }
    return true;  // not quite central: the certificate tells what it is worth
  }

  // Late steps, of directions that are mostly rounding, add up.
  void restore_equations(double sharpness) {
    if (equal_.rows() == 0) return;
    const VectorXd by = settling_.curvature(at_).scale();
    const VectorXd off = equal_to_ - apply(equal_, at_.x);
    VectorXd x = at_.x + by.cwiseProduct(ScaledRows(equal_, by).change(off));
    if ((x.array() > 0).all()) at_ = settling_.settled(std::move(x), at_.pressure, sharpness);
  }

  MinMaxSolution solution(double sharpness) const {
    const Index variables = at_.x.size() - program_.limit.size();
    MinMaxSolution found{.x = at_.x.head(variables),
                         .case_weights = at_.pressure / at_.pressure.sum(),
                         .load_weights = {},
                         .equal_prices = {},
                         .limit_prices = {}};
    std::size_t first = 0;
    for (std::size_t k = 0; k < program_.terms.size(); ++k) {
      const std::size_t loads = program_.terms[k].size();
      const double* const closeness = at_.closeness.data() + first;
      first += loads;
      std::vector<double> weights(closeness, closeness + loads);
      const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (double& weight : weights) weight *= settling_.pressure_on(k, found.case_weights) / sum;
      found.load_weights.push_back(std::move(weights));
    }
    // At a centre the gradient is perpendicular to the null space: a combination of the equations.
    found.equal_prices.resize(program_.equal.rows());
    found.limit_prices.resize(program_.limit.size());
    if (equal_.rows() > 0) {
      const VectorXd by = settling_.curvature(at_).scale();
      const VectorXd all = ScaledRows(equal_, by).combination(-by.cwiseProduct(at_.gradient) / sharpness);
      found.equal_prices = all.head(found.equal_prices.size());
      found.limit_prices = all.tail(found.limit_prices.size()).cwiseMax(0);
    }
    found.value = value(program_, found.x);
    found.lower_bound = lower_bound(program_, found);
    return found;
  }

  const MinMaxProgram& program_;
  const Settling settling_;
  MatrixXd equal_;  // equations, then limits with their slacks
  VectorXd equal_to_;
  Settling::Point at_;
  double complexity_ = 1;  // of the barrier: the gap at a centre is about complexity / sharpness
};

}  // namespace

double value(const MinMaxProgram& program, const VectorXd& x) {
  VectorXd slowest(index(program.terms.size()));
  for (std::size_t k = 0; k < program.terms.size(); ++k) {
    slowest(index(k)) = 0;
    for (const auto& load : program.terms[k])
      slowest(index(k)) = std::max(slowest(index(k)), load.amount / x(load.variable));
  }
  return (program.constant + apply(program.weights, slowest)).maxCoeff();
}

double lower_bound(const MinMaxProgram& program, const MinMaxSolution& found) {
  VectorXd amounts = VectorXd::Zero(found.x.size());
  for (std::size_t k = 0; k < program.terms.size(); ++k)
    for (std::size_t i = 0; i < program.terms[k].size(); ++i)
      amounts(program.terms[k][i].variable) += found.load_weights[k][i] * program.terms[k][i].amount;
  const VectorXd price = prices(program, found);
  if ((price.array() < 0).any()) return -std::numeric_limits<double>::infinity();
  return found.case_weights.dot(program.constant) + 2 * (amounts.array() * price.array()).sqrt().sum() -
         found.limit_prices.dot(program.limit) - found.equal_prices.dot(program.equal_to);
}

MinMaxSolution solve(const MinMaxProgram& program, const VectorXd& start, const Gaps& gaps) {
  return Barrier(program, start).solve(gaps);
}

}  // namespace ranvier::solver
