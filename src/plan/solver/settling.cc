#include "plan/solver/settling.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ranvier::solver {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

// Shifts of pressure between cases, in the same units, which leave their sum as it is.
MatrixXd shifts(const VectorXd& pressure) {
  const Eigen::HouseholderQR<MatrixXd> decomposition{MatrixXd(pressure)};
  return MatrixXd(decomposition.householderQ()).rightCols(pressure.size() - 1);
}

}  // namespace

MatrixXd times(const MatrixXd& a, const MatrixXd& b) { return a * b; }
VectorXd apply(const MatrixXd& a, const VectorXd& x) { return a * x; }
MatrixXd transposed(const MatrixXd& matrix) { return matrix.transpose(); }

Settling::Settling(const MinMaxProgram& program) : program_(program) {
  weights_.reserve(program.terms.size());
  for (Index k = 0; k < program.weights.cols(); ++k) {
    weights_.emplace_back();
    for (Index s = 0; s < program.weights.rows(); ++s)
      if (program.weights(s, k) > 0) weights_.back().push_back({s, program.weights(s, k)});
  }
}

double Settling::pressure_on(std::size_t k, const VectorXd& by_case) const {
  double sum = 0;
  for (const auto& [which, weight] : weights_[k]) sum += weight * by_case(which);
  return sum;
}

// t for given pressures on the cases: where a term's sum of 1 / (t - ratio) is what its cases press with.
void Settling::settle_terms(Point& point) const {
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
MatrixXd Settling::case_curvature(const Point& point) const {
  MatrixXd result = MatrixXd::Zero(point.pressure.size(), point.pressure.size());
  for (std::size_t k = 0; k < weights_.size(); ++k)
    for (const auto& [one, weight] : weights_[k])
      for (const auto& [other, others_weight] : weights_[k])
        result(one, other) +=
            weight * point.pressure(one) * (others_weight * point.pressure(other)) / point.squares(index(k));
  result.diagonal().array() += 1;
  return result;
}

Settling::Point Settling::settled(VectorXd x, const VectorXd& likely_pressure, double sharpness) const {
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

// Of the slack's logarithms and of what presses on them; a case that is far below z counts by its own slack alone.
VectorXd Settling::steepness(const Point& point) const {
  VectorXd result = program_.constant;
  for (std::size_t k = 0; k < weights_.size(); ++k)
    for (const auto& [which, weight] : weights_[k]) result(which) += weight * point.t(index(k));
  result.array() -= result.maxCoeff();  // the sum stays: what all have in common moves nothing
  return result + point.pressure.cwiseInverse();
}

// Steps are chosen as in Barrier::centre.
void Settling::settle_cases(Point& point) const {
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

Settling::Curvature Settling::curvature(const Point& at) const {
  const Index cases = program_.constant.size();
  Curvature of{.xx = MatrixXd::Zero(at.x.size(), at.x.size()), .pressure = MatrixXd::Zero(cases, at.x.size())};
  MatrixXd& result = of.xx;
  result.diagonal() = at.x.cwiseInverse().cwiseAbs2();
  MatrixXd by_case = MatrixXd::Zero(at.x.size(), cases);  // of the cases' times, by x
  VectorXd pull(0);
  std::size_t first = 0;
  for (std::size_t k = 0; k < program_.terms.size(); ++k) {
    const auto& loads = program_.terms[k];
    const double* const ratio = at.ratio.data() + first;
    const double* const closeness = at.closeness.data() + first;
    first += loads.size();
    const double squares = at.squares(index(k));
    const auto closest = static_cast<std::size_t>(std::max_element(closeness, closeness + loads.size()) - closeness);
    double others = 0;  // of the sum of squares: what subtraction would leave of it has no digits
    for (std::size_t l = 0; l < loads.size(); ++l)
      if (l != closest) others += closeness[l] * closeness[l];
    pull.resize(index(loads.size()));
    for (std::size_t l = 0; l < loads.size(); ++l) {
      const double x = at.x(loads[l].variable);
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
    const MatrixXd basis = shifts(at.pressure);
    const MatrixXd tied = times(MatrixXd(by_case * at.pressure.asDiagonal()), basis);
    const MatrixXd between = times(times(transposed(basis), case_curvature(at)), basis);
    const MatrixXd shift = between.llt().solve(transposed(tied));
    result += times(tied, shift);
    of.pressure = at.pressure.asDiagonal() * times(basis, shift);
  }
  return of;
}

}  // namespace ranvier::solver
