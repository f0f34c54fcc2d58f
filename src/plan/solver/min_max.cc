// A path-following barrier method: S. Boyd, L. Vandenberghe: Convex Optimization (2004), chapter 11; for its speed
// Y. Nesterov, A. Nemirovskii: Interior-Point Polynomial Algorithms in Convex Programming (1994).
//
// With t_k for the time of term k and z for the value, minimise z subject to t_k >= amount_ki / x_i, constant_s +
// weights_s·t <= z, x > 0, and the linear constraints. Terms may be many, variables are few: the barrier is a function
// of x alone, whose t and z are the best ones for it (`settled`), and so has as many unknowns as there are bandwidths.
// A barrier that is minimised over some of its variables stays self-concordant (chapter 5.1.3 there); without that each
// of thousands of terms could only go so far in a step of Newton's, and would hold x back. amount / x is compatible
// with -log x (5.1.2), so that one -log x for each variable is enough for all terms over it. A step takes time linear
// in the terms and cubic only in variables + cases + equations.
//
// What belongs to t and z is kept as differences from where the constraints bind, which near the end are 10^12 times
// smaller than t and z: subtracted from each other these would leave no digit of them.
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

// Of a unit of each variable.
VectorXd prices(const MinMaxProgram& program, const MinMaxSolution& found) {
  return apply(transposed(program.at_most), found.limit_prices) + apply(transposed(program.equal), found.equal_prices);
}

// Newton's decrements on the way to one centre: whether rounding is all that is left of them. A step below 1/4 leaves
// less than half of one, but for rounding.
class Decrements {
 public:
  bool stall(double decrement) {
    if (decrement < least_ / 2) {
      least_ = decrement;
      futile_ = 0;
      return false;
    }
    return decrement < 1 && ++futile_ > (least_ < 0.1 ? 1 : 8);
  }

 private:
  double least_ = std::numeric_limits<double>::infinity();
  int futile_ = 0;
};

class Barrier {
 public:
  Barrier(const MinMaxProgram& program, const VectorXd& start) : program_(program) {
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
    weights_.reserve(program.terms.size());
    for (Index k = 0; k < program.weights.cols(); ++k) {
      weights_.emplace_back();
      for (Index s = 0; s < program.weights.rows(); ++s)
        if (program.weights(s, k) > 0) weights_.back().push_back({s, program.weights(s, k)});
    }
    for (const auto& loads : program.terms) complexity_ += static_cast<double>(loads.size());
    complexity_ += static_cast<double>(program.constant.size() + at_.x.size());
  }

  MinMaxSolution solve() {
    MinMaxSolution best;
    best.lower_bound = -std::numeric_limits<double>::infinity();
    const double start = value(program_, at_.x);
    for (double sharpness = complexity_ / std::max(start, 1e-12);; sharpness *= sharpen) {
      if (!centre(sharpness)) break;
      restore_equations(sharpness);
      MinMaxSolution found = solution(sharpness);
      const bool is_better = best.x.size() == 0 || gap(found) < gap(best) / 2;
      const bool is_enough = gap(best) <= acceptable_gap;
      if (gap(found) < gap(best) || best.x.size() == 0) best = std::move(found);
      // Beyond this rounding is all that moves.
      if (gap(best) <= wanted_gap || (is_enough && !is_better)) break;
      if (complexity_ / sharpness < 1e-14 * std::abs(best.value)) break;
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

  // Bandwidths, with the t and z that are the best for them.
  struct Point {
    VectorXd x;                     // slacks behind the variables
    VectorXd pressure;              // by case: the reciprocal of how far it is below z; they add up to the sharpness
    std::vector<double> ratio;      // by load: amount / x
    std::vector<double> closeness;  // by load: the reciprocal of t - ratio; of a term they add up to its pressure
    VectorXd t;                     // by term
    VectorXd squares;               // by term: the sum of closeness^2
    VectorXd gradient;
  };

  double pressure_on(std::size_t k, const VectorXd& by_case) const {
    double sum = 0;
    for (const auto& [which, weight] : weights_[k]) sum += weight * by_case(which);
    return sum;
  }

  // t for given pressures on the cases: where a term's sum of 1 / (t - ratio) is what its cases press with.
  void settle_terms(Point& point) const {
    std::size_t first = 0;
    for (std::size_t k = 0; k < program_.terms.size(); ++k) {
      const std::size_t loads = program_.terms[k].size();
      const double* const ratio = point.ratio.data() + first;
      double* const closeness = point.closeness.data() + first;
      first += loads;
      const double wanted = pressure_on(k, point.pressure);
      const double least = *std::max_element(ratio, ratio + loads);
      // Newton's method on the reciprocal of the sum, which is concave and nearly linear: from below it comes nearer
      // from this side alone, and soon.
      double above = 1 / wanted;
      double squares = 0;
      for (int i = 0; i < 60; ++i) {
        double sum = 0;
        squares = 0;
        for (std::size_t l = 0; l < loads; ++l) {
          const double each = 1 / (above + (least - ratio[l]));
          closeness[l] = each;
          sum += each;
          squares += each * each;
        }
        if (loads == 1 || sum <= wanted * (1 + 1e-13)) break;
        above += (sum - wanted) / squares * (sum / wanted);
      }
      point.t(index(k)) = least + above;
      point.squares(index(k)) = squares;
    }
  }

  // How the cases give way to one another: their second derivatives by pressure, each in units of its own pressure, in
  // which they are 1 and more.
  MatrixXd case_curvature(const Point& point) const {
    MatrixXd result = MatrixXd::Zero(point.pressure.size(), point.pressure.size());
    for (std::size_t k = 0; k < weights_.size(); ++k)
      for (const auto& [one, weight] : weights_[k])
        for (const auto& [other, others_weight] : weights_[k])
          result(one, other) +=
              weight * point.pressure(one) * (others_weight * point.pressure(other)) / point.squares(index(k));
    result.diagonal().array() += 1;
    return result;
  }

  // Shifts of pressure between cases, in the same units, which leave their sum as it is.
  static MatrixXd shifts(const VectorXd& pressure) {
    const Eigen::HouseholderQR<MatrixXd> decomposition{MatrixXd(pressure)};
    return MatrixXd(decomposition.householderQ()).rightCols(pressure.size() - 1);
  }

  // The t and z that are the best for x. Of one case they follow from the sharpness. Of several the pressures are a
  // concave problem of their own, of maximum slack: Newton's method, with steps chosen as in `centre`.
  Point settled(VectorXd x, const VectorXd& likely_pressure, double sharpness) const {
    Point point{.x = std::move(x),
                .pressure = likely_pressure * (sharpness / likely_pressure.sum()),
                .ratio = {},
                .closeness = {},
                .t = VectorXd(index(program_.terms.size())),
                .squares = VectorXd(index(program_.terms.size())),
                .gradient = {}};
    for (const auto& loads : program_.terms)
      for (const auto& load : loads) point.ratio.push_back(load.amount / point.x(load.variable));
    point.closeness.resize(point.ratio.size());
    settle_terms(point);
    if (program_.constant.size() > 1) settle_cases(point);
    point.gradient = -point.x.cwiseInverse();
    std::size_t at = 0;
    for (const auto& loads : program_.terms)
      for (const auto& load : loads) {
        point.gradient(load.variable) -= point.closeness[at] * point.ratio[at] / point.x(load.variable);
        ++at;
      }
    return point;
  }

  void settle_cases(Point& point) const {
    // Of the slack's logarithms and of what presses on them; a case that is far below z counts by its own slack alone.
    const auto steepness = [&](const Point& there) {
      VectorXd result = program_.constant;
      for (std::size_t k = 0; k < weights_.size(); ++k)
        for (const auto& [which, weight] : weights_[k]) result(which) += weight * there.t(index(k));
      result.array() -= result.maxCoeff();  // the sum stays: what all have in common moves nothing
      return VectorXd(result + there.pressure.cwiseInverse());
    };
    Decrements decrements;
    for (int i = 0; i < most_steps_to_a_centre; ++i) {
      const VectorXd pressure = point.pressure;
      const MatrixXd basis = shifts(pressure);
      const MatrixXd basis_transposed = transposed(basis);
      const VectorXd slope = apply(basis_transposed, VectorXd(pressure.cwiseProduct(steepness(point))));
      const MatrixXd curvature = times(times(basis_transposed, case_curvature(point)), basis);
      const VectorXd change = curvature.llt().solve(slope);
      const double decrement = std::sqrt(std::max(0.0, change.dot(slope)));
      if (!(decrement > 1e-9) || decrements.stall(decrement)) return;
      const VectorXd way = pressure.cwiseProduct(apply(basis, change));
      const double safe = decrement < 0.25 ? 1 : 1 / (1 + decrement);
      for (double step = 1;; step = std::max(safe, step / 2)) {
        point.pressure = pressure + step * way;
        const bool is_positive = (point.pressure.array() > 0).all();
        if (is_positive) settle_terms(point);
        if (step <= safe) break;
        if (is_positive && steepness(point).dot(way) >= -0.1 * decrement * decrement) break;
      }
      if (decrement < 1e-5) return;  // squared by the step
    }
  }

  // What has no part in the equations, as columns, which are of length one in variables divided by `scale`.
  MatrixXd null_space(const VectorXd& scale) const {
    if (equal_.rows() == 0) return scale.asDiagonal();
    const Eigen::HouseholderQR<MatrixXd> decomposition(transposed(MatrixXd(equal_ * scale.asDiagonal())));
    return scale.asDiagonal() * MatrixXd(decomposition.householderQ()).rightCols(scale.size() - equal_.rows());
  }

  // Derivatives where t and z follow x.
  struct Curvature {
    MatrixXd xx;
    MatrixXd pressure;  // by x
    // How far each variable moves for one unit of the barrier.
    VectorXd scale() const { return xx.diagonal().cwiseSqrt().cwiseInverse(); }
  };

  Curvature curvature() const {
    const Index cases = program_.constant.size();
    Curvature of{.xx = MatrixXd::Zero(at_.x.size(), at_.x.size()), .pressure = MatrixXd::Zero(cases, at_.x.size())};
    MatrixXd& result = of.xx;
    result.diagonal() = at_.x.cwiseInverse().cwiseAbs2();
    MatrixXd by_case = MatrixXd::Zero(at_.x.size(), cases);  // of the cases' times, by x
    VectorXd pull(0);
    std::size_t first = 0;
    for (std::size_t k = 0; k < program_.terms.size(); ++k) {
      const auto& loads = program_.terms[k];
      const double* const ratio = at_.ratio.data() + first;
      const double* const closeness = at_.closeness.data() + first;
      first += loads.size();
      const double squares = at_.squares(index(k));
      const auto closest = static_cast<std::size_t>(std::max_element(closeness, closeness + loads.size()) - closeness);
      double others = 0;  // of the sum of squares: what subtraction would leave of it has no digits
      for (std::size_t l = 0; l < loads.size(); ++l)
        if (l != closest) others += closeness[l] * closeness[l];
      pull.resize(index(loads.size()));
      for (std::size_t l = 0; l < loads.size(); ++l) {
        const double x = at_.x(loads[l].variable);
        const double slope = closeness[l] * ratio[l] / x;
        const double rest = l == closest ? others : squares - closeness[l] * closeness[l];
        result(loads[l].variable, loads[l].variable) += 2 * slope / x + slope * slope * (rest / squares);
        pull(index(l)) = slope * closeness[l] / squares;
        for (std::size_t m = 0; m < l; ++m) {
          const double both = pull(index(l)) * pull(index(m)) * squares;
          result(loads[l].variable, loads[m].variable) -= both;
          result(loads[m].variable, loads[l].variable) -= both;
        }
        if (cases > 1)
          for (const auto& [which, weight] : weights_[k]) by_case(loads[l].variable, which) -= weight * pull(index(l));
      }
    }
    if (cases > 1) {
      const MatrixXd basis = shifts(at_.pressure);
      const MatrixXd tied = times(MatrixXd(by_case * at_.pressure.asDiagonal()), basis);
      const MatrixXd between = times(times(transposed(basis), case_curvature(at_)), basis);
      const MatrixXd shift = between.llt().solve(transposed(tied));
      result += times(tied, shift);
      of.pressure = at_.pressure.asDiagonal() * times(basis, shift);
    }
    return of;
  }

  // Newton's direction.
  VectorXd direction(const Curvature& here) const {
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
    at_ = settled(std::move(at_.x), at_.pressure, sharpness);
    Decrements decrements;
    for (int i = 0; i < most_steps_to_a_centre; ++i) {
      const Curvature here = curvature();
      const VectorXd way = direction(here);
      const VectorXd shift = apply(here.pressure, way);
      const double slope = at_.gradient.dot(way);
      if (!std::isfinite(slope)) return false;
      const double decrement = std::sqrt(std::max(0.0, -slope));
      if (decrement < 1e-6 || decrements.stall(decrement)) return true;
      const double safe = decrement < 0.25 ? 1 : 1 / (1 + decrement);
      const auto there = [&](double step) -> std::optional<Point> {
        VectorXd x = at_.x + step * way;
        if (!(x.array() > 0).all()) return std::nullopt;
        return settled(std::move(x), (at_.pressure + step * shift).cwiseMax(0.1 * at_.pressure), sharpness);
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
    const VectorXd by = curvature().scale();
    const VectorXd off = equal_to_ - apply(equal_, at_.x);
    VectorXd x = at_.x + by.cwiseProduct(ScaledRows(equal_, by).change(off));
    if ((x.array() > 0).all()) at_ = settled(std::move(x), at_.pressure, sharpness);
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
      for (double& weight : weights) weight *= pressure_on(k, found.case_weights) / sum;
      found.load_weights.push_back(std::move(weights));
    }
    // At a centre the gradient is perpendicular to the null space: a combination of the equations.
    found.equal_prices.resize(program_.equal.rows());
    found.limit_prices.resize(program_.limit.size());
    if (equal_.rows() > 0) {
      const VectorXd by = curvature().scale();
      const VectorXd all = ScaledRows(equal_, by).combination(-by.cwiseProduct(at_.gradient) / sharpness);
      found.equal_prices = all.head(found.equal_prices.size());
      found.limit_prices = all.tail(found.limit_prices.size()).cwiseMax(0);
    }
    found.value = value(program_, found.x);
    found.lower_bound = lower_bound(program_, found);
    return found;
  }

  const MinMaxProgram& program_;
  struct Weight {
    Index of_case;
    double weight;
  };
  std::vector<std::vector<Weight>> weights_;  // by term, those above 0: of thousands of terms each may be of one case
  MatrixXd equal_;                            // equations, then limits with their slacks
  VectorXd equal_to_;
  Point at_;
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
