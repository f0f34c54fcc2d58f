// A path-following barrier method: S. Boyd, L. Vandenberghe: Convex Optimization (2004), chapter 11; for its speed
// Y. Nesterov, A. Nemirovskii: Interior-Point Polynomial Algorithms in Convex Programming (1994).
//
// With t_k for the time of term k and z for the value, minimise z subject to x_i t_k >= amount_ki (a rotated second-
// order cone, whose barrier is -log(x_i t_k - amount_ki)), constant_s + weights_s·t <= z, and the linear constraints.
// Terms may be many, variables are few: t is eliminated from Newton's equations, where its own block is diagonal but
// for the cases, which get one auxiliary unknown each. A step takes time linear in the terms and cubic only in
// variables + cases + equations; some 100 steps give ten digits.
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

#include "ranvier/error.h"

namespace ranvier::solver {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double wanted_gap = 1e-10;
constexpr double acceptable_gap = 5e-7;
constexpr double sharpen = 12;  // how much the barrier weakens from one centre to the next
constexpr int most_steps_to_a_centre = 100;

Index index(std::size_t i) { return static_cast<Index>(i); }

// All products are made here. Eigen instantiates its kernels anew for each form of the factors (transposed, scaled, a
// block), which took a minute to compile; transposes are copied instead, and take little of a step's time.
MatrixXd times(const MatrixXd& a, const MatrixXd& b) { return a * b; }
VectorXd apply(const MatrixXd& a, const VectorXd& x) { return a * x; }
MatrixXd transposed(const MatrixXd& matrix) { return matrix.transpose(); }
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

// A point, or a direction.
struct Point {
  VectorXd x;
  VectorXd t;
  double z = 0;

  Point plus(double step, const Point& direction) const {
    return {x + step * direction.x, t + step * direction.t, z + step * direction.z};
  }
  double dot(const Point& other) const { return x.dot(other.x) + t.dot(other.t) + z * other.z; }
};

// Of a unit of each variable.
VectorXd prices(const MinMaxProgram& program, const MinMaxSolution& found) {
  return apply(transposed(program.at_most), found.limit_prices) + apply(transposed(program.equal), found.equal_prices);
}

class Barrier {
 public:
  Barrier(const MinMaxProgram& program, const VectorXd& start)
      : program_(program), weights_transposed_(transposed(program.weights)) {
    const Index variables = start.size();
    const Index equations = program.equal.rows();
    const Index limits = program.limit.size();
    equal_ = MatrixXd::Zero(equations + limits, variables + limits);
    equal_.topLeftCorner(equations, variables) = program.equal;
    equal_.bottomLeftCorner(limits, variables) = program.at_most;
    equal_.bottomRightCorner(limits, limits).setIdentity();
    equal_to_.resize(equations + limits);
    equal_to_ << program.equal_to, program.limit;
    at_.x.resize(variables + limits);
    at_.x << start, program.limit - apply(program.at_most, start);
    // The start keeps the equations as well as a linear program does; the rest is shared out in proportion, so that
    // nothing small becomes negative.
    if (equal_.rows() > 0)
      at_.x += at_.x.cwiseProduct(ScaledRows(equal_, at_.x).change(equal_to_ - apply(equal_, at_.x)));
    at_.t.resize(index(program.terms.size()));
    for (std::size_t k = 0; k < program.terms.size(); ++k) at_.t(index(k)) = 1.5 * slowest(k, at_.x);
    const VectorXd cases = program.constant + apply(program.weights, at_.t);
    at_.z = cases.maxCoeff() + std::max(1.0, cases.cwiseAbs().maxCoeff()) * 0.5;
    for (const auto& loads : program.terms) complexity_ += 2 * static_cast<double>(loads.size());
    complexity_ += static_cast<double>(program.constant.size() + at_.x.size());
  }

  MinMaxSolution solve() {
    MinMaxSolution best;
    best.lower_bound = -std::numeric_limits<double>::infinity();
    for (double sharpness = complexity_ / std::max(at_.z, 1e-12);; sharpness *= sharpen) {
      if (!centre(sharpness)) break;
      restore_equations(sharpness);
      MinMaxSolution found = solution(sharpness);
      if (gap(found) < gap(best) || best.x.size() == 0) best = std::move(found);
      // Beyond this rounding is all that moves.
      if (gap(best) <= wanted_gap || complexity_ / sharpness < 1e-14 * std::abs(at_.z)) break;
    }
    if (best.x.size() == 0 || !(gap(best) <= acceptable_gap))
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

  double slowest(std::size_t k, const VectorXd& x) const {
    double time = 0;
    for (const auto& load : program_.terms[k]) time = std::max(time, load.amount / x(load.variable));
    return time;
  }

  bool inside(const Point& point) const {
    if ((point.x.array() <= 0).any()) return false;
    for (std::size_t k = 0; k < program_.terms.size(); ++k)
      for (const auto& load : program_.terms[k])
        if (point.t(index(k)) <= 0 || point.x(load.variable) * point.t(index(k)) <= load.amount) return false;
    return (case_slack(point).array() > 0).all();
  }

  VectorXd case_slack(const Point& point) const {
    return VectorXd::Constant(program_.constant.size(), point.z) - program_.constant - apply(program_.weights, point.t);
  }

  Point gradient(const Point& point, double sharpness) const {
    const VectorXd cases = case_slack(point).cwiseInverse();
    Point result{.x = -point.x.cwiseInverse(), .t = apply(weights_transposed_, cases), .z = sharpness - cases.sum()};
    for (std::size_t k = 0; k < program_.terms.size(); ++k) {
      const double t = point.t(index(k));
      for (const auto& load : program_.terms[k]) {
        const double x = point.x(load.variable);
        const double slack = x * t - load.amount;
        result.x(load.variable) -= t / slack;
        result.t(index(k)) -= x / slack;
      }
    }
    return result;
  }

  // What has no part in the equations, as columns, which are of length one in variables divided by `scale`.
  MatrixXd null_space(const VectorXd& scale) const {
    if (equal_.rows() == 0) return scale.asDiagonal();
    const Eigen::HouseholderQR<MatrixXd> decomposition(transposed(MatrixXd(equal_ * scale.asDiagonal())));
    return scale.asDiagonal() * MatrixXd(decomposition.householderQ()).rightCols(scale.size() - equal_.rows());
  }

  struct Curvature {
    MatrixXd xx, xt;
    VectorXd tt;  // diagonal
    // How far each variable moves for one unit of the barrier, terms following.
    VectorXd scale() const {
      const VectorXd stiffness = xx.diagonal() - apply(xt.cwiseAbs2(), tt.cwiseInverse());
      return stiffness.cwiseMax(1e-12 * xx.diagonal()).cwiseSqrt().cwiseInverse();
    }
  };

  Curvature curvature() const {
    Curvature of{.xx = at_.x.cwiseInverse().cwiseAbs2().asDiagonal(),
                 .xt = MatrixXd::Zero(at_.x.size(), at_.t.size()),
                 .tt = VectorXd::Zero(at_.t.size())};
    for (std::size_t k = 0; k < program_.terms.size(); ++k) {
      const double t = at_.t(index(k));
      for (const auto& load : program_.terms[k]) {
        const double x = at_.x(load.variable);
        const double inverse = 1 / (x * t - load.amount);
        of.xx(load.variable, load.variable) += t * inverse * t * inverse;
        of.xt(load.variable, index(k)) += load.amount * inverse * inverse;
        of.tt(index(k)) += x * inverse * x * inverse;
      }
    }
    return of;
  }

  // Newton's direction.
  Point direction(const Point& gradient) const {
    const Index cases = program_.constant.size();
    const Curvature here = curvature();
    const auto& [xx, xt, tt] = here;
    const MatrixXd basis = null_space(here.scale());
    const MatrixXd basis_transposed = transposed(basis);
    const VectorXd tt_inverse = tt.cwiseInverse();
    const MatrixXd xt_tt = xt * tt_inverse.asDiagonal();
    const MatrixXd w_tt = program_.weights * tt_inverse.asDiagonal();
    const MatrixXd tx = transposed(xt);

    // Unknowns: dx in the null space, dz, and one u for each case (its slack's change over slack squared).
    const Index z_at = basis.cols();
    const Index u_at = z_at + 1;
    MatrixXd matrix = MatrixXd::Zero(u_at + cases, u_at + cases);
    VectorXd right = VectorXd::Zero(u_at + cases);
    matrix.block(0, 0, z_at, z_at) = times(times(basis_transposed, xx - times(xt_tt, tx)), basis);
    matrix.block(0, u_at, z_at, cases) = -times(times(basis_transposed, xt_tt), weights_transposed_);
    right.head(z_at) = apply(basis_transposed, apply(xt_tt, gradient.t) - gradient.x);
    matrix.block(z_at, u_at, 1, cases).setConstant(-1);
    right(z_at) = -gradient.z;
    matrix.block(u_at, 0, cases, z_at) = times(times(w_tt, tx), basis);
    matrix.block(u_at, z_at, cases, 1).setConstant(1);
    matrix.block(u_at, u_at, cases, cases) = times(w_tt, weights_transposed_);
    matrix.block(u_at, u_at, cases, cases).diagonal() += case_slack(at_).cwiseAbs2();
    right.tail(cases) = -apply(w_tt, gradient.t);

    // Rows and columns differ by many powers of ten near the end; scaled alike they lose fewer digits.
    VectorXd scale = matrix.cwiseAbs().rowwise().maxCoeff().cwiseMax(1e-300).cwiseSqrt().cwiseInverse();
    const MatrixXd scaled = scale.asDiagonal() * matrix * scale.asDiagonal();
    const VectorXd scaled_right = scale.cwiseProduct(right);
    const Eigen::PartialPivLU<MatrixXd> decomposition(scaled);
    VectorXd solved = decomposition.solve(scaled_right);
    // What is left over, solved for again: without it stiff unknowns are right to all digits and loose ones beside them
    // to none, so that the direction leads nowhere (R. D. Skeel: Iterative refinement implies numerical stability for
    // Gaussian elimination. Mathematics of Computation 35 (1980)).
    for (int i = 0; i < 2; ++i) solved += decomposition.solve(VectorXd(scaled_right - apply(scaled, solved)));
    solved.array() *= scale.array();

    Point result{.x = apply(basis, solved.head(z_at)), .t = {}, .z = solved(z_at)};
    result.t =
        -tt_inverse.cwiseProduct(gradient.t + apply(tx, result.x) + apply(weights_transposed_, solved.tail(cases)));
    return result;
  }

  // Of one case, whose slack at a centre is 1 / sharpness, the t and z that are best for an x follow from it: weight x
  // sharpness = sum over loads of 1 / (t - amount / x). Thousands of terms, each of which may only go so far along its
  // hyperbola in a step of Newton's, would hold x back.
  Point settled(Point point, double sharpness) const {
    if (program_.constant.size() != 1 || (point.x.array() <= 0).any()) return point;
    for (std::size_t k = 0; k < program_.terms.size(); ++k) {
      const double wanted = sharpness * program_.weights(0, index(k));
      const double least = slowest(k, point.x);
      double above = 1 / wanted;  // or more; Newton's method comes nearer from this side alone
      for (int i = 0; i < 60 && program_.terms[k].size() > 1; ++i) {
        double sum = 0;
        double squares = 0;
        for (const auto& load : program_.terms[k]) {
          const double each = 1 / (above + (least - load.amount / point.x(load.variable)));
          sum += each;
          squares += each * each;
        }
        if (sum <= wanted * (1 + 1e-13)) break;
        above += (sum - wanted) / squares;
      }
      point.t(index(k)) = least + above;
    }
    point.z = program_.constant(0) + program_.weights.row(0).dot(point.t) + 1 / sharpness;
    return point;
  }

  // Newton's method from where we are to the centre of this sharpness. Steps are chosen by slopes, not by values, whose
  // differences rounding hides: at least the damped step 1 / (1 + decrement), which self-concordance makes safe. False
  // where rounding lets it get no further.
  bool centre(double sharpness) {
    at_ = settled(std::move(at_), sharpness);
    for (int i = 0; i < most_steps_to_a_centre; ++i) {
      const Point here = gradient(at_, sharpness);
      const Point way = direction(here);
      const double slope = here.dot(way);
      if (!std::isfinite(slope)) return false;
      const double decrement = std::sqrt(std::max(0.0, -slope));
      if (decrement < 1e-6) return true;
      const double safe = decrement < 0.25 ? 1 : 1 / (1 + decrement);
      double step = 1;
      while (step > safe) {
        const Point there = settled(at_.plus(step, way), sharpness);
        if (inside(there) && gradient(there, sharpness).dot(way) <= 0.1 * decrement * decrement) break;
        step = std::max(safe, step / 2);
      }
      Point there = settled(at_.plus(step, way), sharpness);
      for (; !inside(there); there = settled(at_.plus(step, way), sharpness)) {
        step /= 2;
        if (step < 1e-12) return false;
      }
      at_ = std::move(there);
    }
    return true;  // not quite central: the certificate tells what it is worth
  }

  // Late steps, of directions that are mostly rounding, add up.
  void restore_equations(double sharpness) {
    if (equal_.rows() == 0) return;
    const VectorXd scale = curvature().scale();
    const VectorXd off = equal_to_ - apply(equal_, at_.x);
    Point there = at_;
    there.x += scale.cwiseProduct(ScaledRows(equal_, scale).change(off));
    there = settled(std::move(there), sharpness);
    if (inside(there)) at_ = std::move(there);
  }

  MinMaxSolution solution(double sharpness) const {
    const Index variables = at_.x.size() - program_.limit.size();
    MinMaxSolution found{.x = at_.x.head(variables),
                         .slowest = {},
                         .case_weights = {},
                         .load_weights = {},
                         .equal_prices = {},
                         .limit_prices = {}};
    found.slowest.resize(at_.t.size());
    found.case_weights = case_slack(at_).cwiseInverse();
    found.case_weights /= found.case_weights.sum();
    const VectorXd term_weights = apply(weights_transposed_, found.case_weights);
    for (std::size_t k = 0; k < program_.terms.size(); ++k) {
      found.slowest(index(k)) = slowest(k, at_.x);
      std::vector<double> weights;
      double sum = 0;
      for (const auto& load : program_.terms[k]) {
        const double x = at_.x(load.variable);
        weights.push_back(x / (x * at_.t(index(k)) - load.amount));
        sum += weights.back();
      }
      for (double& weight : weights) weight *= term_weights(index(k)) / sum;
      found.load_weights.push_back(std::move(weights));
    }
    // At a centre the gradient is perpendicular to the null space: a combination of the equations.
    found.equal_prices.resize(program_.equal.rows());
    found.limit_prices.resize(program_.limit.size());
    if (equal_.rows() > 0) {
      const VectorXd scale = curvature().scale();
      const VectorXd all =
          ScaledRows(equal_, scale).combination(-scale.cwiseProduct(gradient(at_, sharpness).x) / sharpness);
      found.equal_prices = all.head(found.equal_prices.size());
      found.limit_prices = all.tail(found.limit_prices.size()).cwiseMax(0);
    }
    found.value = value(program_, found.x);
    found.lower_bound = lower_bound(program_, found);
    return found;
  }

  const MinMaxProgram& program_;
  const MatrixXd weights_transposed_;
  MatrixXd equal_;  // equations, then limits with their slacks
  VectorXd equal_to_;
  Point at_;               // slacks behind the variables
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

MinMaxSolution solve(const MinMaxProgram& program, const VectorXd& start) { return Barrier(program, start).solve(); }

}  // namespace ranvier::solver
