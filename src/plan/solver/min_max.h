// The convex problem under every design: the least largest case, each case a constant plus a weighted sum of terms,
// each term the slowest of its loads, each load an amount divided by a variable.
#pragma once

#include <Eigen/Dense>
#include <utility>
#include <vector>

namespace ranvier::solver {

struct MinMaxProgram {
  struct Load {
    Eigen::Index variable;
    double amount;  // > 0
  };
  // Over x > 0: minimise max over cases s of constant_s + sum over terms k of weights_sk max over loads amount / x,
  std::vector<std::vector<Load>> terms = {};  // none without loads
  Eigen::VectorXd constant = {};
  Eigen::MatrixXd weights = {};  // case by term, >= 0; every term has some weight
  // with equal·x = equal_to, of full row rank, and at_most·x <= limit.
  Eigen::MatrixXd equal = {};
  Eigen::VectorXd equal_to = {};
  Eigen::MatrixXd at_most = {};
  Eigen::VectorXd limit = {};
};

struct MinMaxSolution {
  Eigen::VectorXd x = {};
  double value = 0;        // at x
  double lower_bound = 0;  // by the weights and prices below; see Certificate in ranvier/design.h
  Eigen::VectorXd case_weights = {};
  std::vector<std::vector<double>> load_weights = {};  // as the terms' loads
  Eigen::VectorXd equal_prices = {};
  Eigen::VectorXd limit_prices = {};
};

double value(const MinMaxProgram&, const Eigen::VectorXd& x);
// The bound that weights and prices of a solution prove; minus infinity where they prove nothing.
double lower_bound(const MinMaxProgram&, const MinMaxSolution&);

// Between a value and what is proven of it, as parts of it.
struct Gaps {
  double wanted = 1e-10;
  double acceptable = 5e-7;
};

// A barrier method. `start` is strictly inside: positive, no inequality tight. Best where numbers are near 1. Throws
// Error{internal} when the proven gap, as a part of the value, does not become acceptable.
MinMaxSolution solve(const MinMaxProgram&, const Eigen::VectorXd& start, const Gaps& = {});

}  // namespace ranvier::solver
