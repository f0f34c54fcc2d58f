// Linear programs of a handful of variables: which constraints contradict each other, where a point inside lies, which
// of several optima is the cheapest.
#pragma once

#include <Eigen/Dense>
#include <cstdint>

namespace ranvier::solver {

// Minimise objective·x over x >= 0 with equal·x = equal_to and at_most·x <= limit.
struct LinearProgram {
  Eigen::VectorXd objective = {};
  Eigen::MatrixXd equal = {};
  Eigen::VectorXd equal_to = {};
  Eigen::MatrixXd at_most = {};
  Eigen::VectorXd limit = {};
};

struct LinearSolution {
  enum class Status : std::uint8_t { optimal, infeasible, unbounded };
  Status status = Status::infeasible;
  Eigen::VectorXd x = {};  // where optimal
  double value = 0;
};

// The two-phase simplex method on a dense tableau, with Bland's rule, under which it always ends (R. G. Bland: New
// finite pivoting rules for the simplex method. Mathematics of Operations Research 2 (1977)). Rows are scaled to a
// largest coefficient of 1; what is smaller than 1e-9 then is zero.
LinearSolution solve(const LinearProgram&);

}  // namespace ranvier::solver
