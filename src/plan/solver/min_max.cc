// A path-following barrier method: S. Boyd, L. Vandenberghe: Convex Optimization (2004), chapter 11; for its speed
// Y. Nesterov, A. Nemirovskii: Interior-Point Polynomial Algorithms in Convex Programming (1994).
//
// With t_k for the time of term k and z for the value, minimise z subject to x_i t_k >= amount_ki (a rotated second-
// order cone, whose barrier is -log(x_i t_k - amount_ki)), constant_s + weights_s·t <= z, and the linear constraints.
// Terms may be many, variables are few: t is eliminated from Newton's equations, where its own block is diagonal but
// for the cases, which get one auxiliary unknown each. A step takes time linear in the terms and cubic only in
// variables + cases + equations; some 100 steps give ten digits.
//
// Equations are kept by moving within their null space only, so that they hold to the last digit however steep the
// barrier. Their prices follow at the end from what is left over.
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

class Barrier {
 public:
  Barrier(const MinMaxProgram& program, const VectorXd& start)
      : program_(program),
        weights_transposed_(transposed(program.weights)),
        at_most_transposed_(transposed(program.at_most)),
        at_{.x = start, .t = {}, .z = 0} {
    const Index equations = program.equal.rows();
    null_space_ = MatrixXd::Identity(start.size(), start.size());
    if (equations > 0) {
      const Eigen::HouseholderQR<MatrixXd> decomposition(transposed(program.equal));
      null_space_ = MatrixXd(decomposition.householderQ()).rightCols(start.size() - equations);
      // The start keeps the equations as well as a linear program does.
      at_.x += least_solution(program.equal, program.equal_to - apply(program.equal, start));
    }
    null_space_transposed_ = transposed(null_space_);
    at_.t.resize(index(program.terms.size()));
    for (std::size_t k = 0; k < program.terms.size(); ++k) at_.t(index(k)) = 1.5 * slowest(k, start);
    const VectorXd cases = program.constant + apply(program.weights, at_.t);
    at_.z = cases.maxCoeff() + std::max(1.0, cases.cwiseAbs().maxCoeff()) * 0.5;
    for (const auto& loads : program.terms) complexity_ += 2 * static_cast<double>(loads.size());
    complexity_ += static_cast<double>(program.constant.size() + program.limit.size() + start.size());
  }

  MinMaxSolution solve() {
    MinMaxSolution best;
    best.lower_bound = -std::numeric_limits<double>::infinity();
    for (double sharpness = complexity_ / std::max(at_.z, 1e-12);; sharpness *= sharpen) {
      if (!centre(sharpness)) break;
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
  static double gap(const MinMaxSolution& found) {
    return (found.value - found.lower_bound) / std::max(std::abs(found.value), 1e-300);
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
    return (case_slack(point).array() > 0).all() && (limit_slack(point).array() > 0).all();
  }

  VectorXd case_slack(const Point& point) const {
    return VectorXd::Constant(program_.constant.size(), point.z) - program_.constant - apply(program_.weights, point.t);
  }
  VectorXd limit_slack(const Point& point) const { return program_.limit - apply(program_.at_most, point.x); }

  Point gradient(const Point& point, double sharpness) const {
    const VectorXd cases = case_slack(point).cwiseInverse();
    Point result{.x = -point.x.cwiseInverse(), .t = apply(weights_transposed_, cases), .z = sharpness - cases.sum()};
    result.x += apply(at_most_transposed_, limit_slack(point).cwiseInverse());
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

  // Newton's direction.
  Point direction(const Point& gradient) const {
    const Index n = at_.x.size();
    const Index terms = at_.t.size();
    const Index cases = program_.constant.size();
    MatrixXd xx = at_.x.cwiseInverse().cwiseAbs2().asDiagonal();
    const VectorXd limits = limit_slack(at_).cwiseInverse();
    xx += times(at_most_transposed_, limits.cwiseAbs2().asDiagonal() * program_.at_most);
    MatrixXd xt = MatrixXd::Zero(n, terms);
    VectorXd tt = VectorXd::Zero(terms);
    for (std::size_t k = 0; k < program_.terms.size(); ++k) {
      const double t = at_.t(index(k));
      for (const auto& load : program_.terms[k]) {
        const double x = at_.x(load.variable);
        const double inverse = 1 / (x * t - load.amount);
        xx(load.variable, load.variable) += t * inverse * t * inverse;
        xt(load.variable, index(k)) += load.amount * inverse * inverse;
        tt(index(k)) += x * inverse * x * inverse;
      }
    }
    const VectorXd tt_inverse = tt.cwiseInverse();
    const MatrixXd xt_tt = xt * tt_inverse.asDiagonal();
    const MatrixXd w_tt = program_.weights * tt_inverse.asDiagonal();
    const MatrixXd tx = transposed(xt);

    // Unknowns: dx in the null space, dz, and one u for each case (its slack's change over slack squared).
    const Index z_at = null_space_.cols();
    const Index u_at = z_at + 1;
    MatrixXd matrix = MatrixXd::Zero(u_at + cases, u_at + cases);
    VectorXd right = VectorXd::Zero(u_at + cases);
    matrix.block(0, 0, z_at, z_at) = times(times(null_space_transposed_, xx - times(xt_tt, tx)), null_space_);
    matrix.block(0, u_at, z_at, cases) = -times(times(null_space_transposed_, xt_tt), weights_transposed_);
    right.head(z_at) = apply(null_space_transposed_, apply(xt_tt, gradient.t) - gradient.x);
    matrix.block(z_at, u_at, 1, cases).setConstant(-1);
    right(z_at) = -gradient.z;
    matrix.block(u_at, 0, cases, z_at) = times(times(w_tt, tx), null_space_);
    matrix.block(u_at, z_at, cases, 1).setConstant(1);
    matrix.block(u_at, u_at, cases, cases) = times(w_tt, weights_transposed_);
    matrix.block(u_at, u_at, cases, cases).diagonal() += case_slack(at_).cwiseAbs2();
    right.tail(cases) = -apply(w_tt, gradient.t);

    // Rows and columns differ by many powers of ten near the end; scaled alike they lose fewer digits.
    VectorXd scale = matrix.cwiseAbs().rowwise().maxCoeff().cwiseMax(1e-300).cwiseSqrt().cwiseInverse();
    const MatrixXd scaled = scale.asDiagonal() * matrix * scale.asDiagonal();
    const VectorXd scaled_right = scale.cwiseProduct(right);
    VectorXd solved = scaled.partialPivLu().solve(scaled_right);
    solved.array() *= scale.array();

    Point result{.x = apply(null_space_, solved.head(z_at)), .t = {}, .z = solved(z_at)};
    result.t =
        -tt_inverse.cwiseProduct(gradient.t + apply(tx, result.x) + apply(weights_transposed_, solved.tail(cases)));
    return result;
  }

  // Newton's method from where we are to the centre of this sharpness. Steps are chosen by slopes, not by values, whose
  // differences rounding hides: at least the damped step 1 / (1 + decrement), which self-concordance makes safe. False
  // where rounding lets it get no further.
  bool centre(double sharpness) {
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
        const Point there = at_.plus(step, way);
        if (inside(there) && gradient(there, sharpness).dot(way) <= 0.1 * decrement * decrement) break;
        step = std::max(safe, step / 2);
      }
      while (!inside(at_.plus(step, way))) {
        step /= 2;
        if (step < 1e-12) return false;
      }
      at_ = at_.plus(step, way);
    }
    return true;  // not quite central: the certificate tells what it is worth
  }

  MinMaxSolution solution(double sharpness) const {
    MinMaxSolution found{
        .x = at_.x, .slowest = {}, .case_weights = {}, .load_weights = {}, .equal_prices = {}, .limit_prices = {}};
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
    found.limit_prices = limit_slack(at_).cwiseInverse() / sharpness;
    // At a centre the gradient is perpendicular to the null space: a combination of the equations.
    if (program_.equal.rows() > 0)
      found.equal_prices = least_solution(transposed(program_.equal), -gradient(at_, sharpness).x / sharpness);
    found.value = value(program_, found.x);
    found.lower_bound = lower_bound(program_, found);
    return found;
  }

  const MinMaxProgram& program_;
  const MatrixXd weights_transposed_;
  const MatrixXd at_most_transposed_;
  Point at_;
  MatrixXd null_space_;  // of the equations, as columns
  MatrixXd null_space_transposed_;
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
  const VectorXd price =
      apply(transposed(program.at_most), found.limit_prices) + apply(transposed(program.equal), found.equal_prices);
  if ((price.array() < 0).any()) return -std::numeric_limits<double>::infinity();
  return found.case_weights.dot(program.constant) + 2 * (amounts.array() * price.array()).sqrt().sum() -
         found.limit_prices.dot(program.limit) - found.equal_prices.dot(program.equal_to);
}

MinMaxSolution solve(const MinMaxProgram& program, const VectorXd& start) { return Barrier(program, start).solve(); }

}  // namespace ranvier::solver
