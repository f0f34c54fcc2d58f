// The barrier of a design as a function of the bandwidths alone (min_max.cc): the times of terms and of the step that
// are the best for given ones, and how these follow.
//
// What belongs to a term's t and to z is kept as differences from where the constraints bind, which near the end are
// 10^12 times smaller than t and z: subtracted from each other these would leave no digit of them.
#pragma once

#include <Eigen/Dense>
#include <cstddef>
#include <limits>
#include <vector>

#include "plan/solver/min_max.h"

namespace ranvier::solver {

// All products are made in one file. Eigen instantiates its kernels anew for each form of the factors (transposed,
// scaled, a block), which took a minute to compile; transposes are copied instead, and take little of a step's time.
Eigen::MatrixXd times(const Eigen::MatrixXd&, const Eigen::MatrixXd&);
Eigen::VectorXd apply(const Eigen::MatrixXd&, const Eigen::VectorXd&);
Eigen::MatrixXd transposed(const Eigen::MatrixXd&);

inline Eigen::Index index(std::size_t i) { return static_cast<Eigen::Index>(i); }

constexpr int most_steps_to_a_centre = 100;

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

class Settling {
 public:
  explicit Settling(const MinMaxProgram&);

  // Bandwidths, with the t and z that are the best for them.
  struct Point {
    Eigen::VectorXd x;              // slacks behind the variables
    Eigen::VectorXd pressure;       // by case: the reciprocal of how far it is below z; they add up to the sharpness
    std::vector<double> ratio;      // by load: amount / x
    std::vector<double> closeness;  // by load: the reciprocal of t - ratio; of a term they add up to its pressure
    Eigen::VectorXd t;              // by term
    Eigen::VectorXd squares;        // by term: the sum of closeness^2
    Eigen::VectorXd gradient;
  };

  // Derivatives where t and z follow x.
  struct Curvature {
    Eigen::MatrixXd xx;
    Eigen::MatrixXd pressure;  // by x
    // How far each variable moves for one unit of the barrier.
    Eigen::VectorXd scale() const { return xx.diagonal().cwiseSqrt().cwiseInverse(); }
  };

  // The t and z that are the best for x. Of one case they follow from the sharpness. Of several the pressures are a
  // concave problem of their own, of maximum slack: Newton's method from likely ones.
  Point settled(Eigen::VectorXd x, const Eigen::VectorXd& likely_pressure, double sharpness) const;
  Curvature curvature(const Point&) const;
  // Of all cases, for given ones.
  double pressure_on(std::size_t term, const Eigen::VectorXd& by_case) const;

 private:
  void settle_terms(Point&) const;
  void settle_cases(Point&) const;
  Eigen::VectorXd steepness(const Point&) const;
  Eigen::MatrixXd case_curvature(const Point&) const;

  const MinMaxProgram& program_;
  struct Weight {
    Eigen::Index of_case;
    double weight;
  };
  std::vector<std::vector<Weight>> weights_;  // by term, those above 0: of thousands of terms each may be of one case
};

}  // namespace ranvier::solver
