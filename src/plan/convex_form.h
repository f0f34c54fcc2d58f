// A design problem as the convex program that its optimum comes from.
//
// Time is a sum of maxima of bytes / b under linear constraints: convex as it stands. Time x cost is not, but with
// y = b / cost(b) and s = 1 / cost(b) it is the sum of constant / s and maxima of bytes / y, where A b <= d becomes
// A y <= d s and cost(y) = 1: the same problem with one more variable. (The Charnes-Cooper substitution. A. Charnes,
// W. W. Cooper: Programming with linear fractional functionals. Naval Research Logistics Quarterly 9 (1962).)
#pragma once

#include <map>
#include <vector>

#include "plan/region.h"
#include "plan/solver/min_max.h"
#include "ranvier/design.h"

namespace ranvier::plan {

// Variables: the dimensions, then one for each set of several dimensions that carry a load together, then for time_cost
// the reciprocal of the cost. Bandwidths are multiples of `scale` x their unit in GB/s, times of `time_scale` ns,
// dollars per GB/s of `cost_scale`, so that all numbers are near 1.
struct ConvexForm {
  struct Term {
    std::vector<solver::MinMaxProgram::Load> loads = {};  // the largest is 1
    Eigen::VectorXd weights = {};                         // by case
  };

  const DesignProblem& problem;
  bool priced = false;  // time_cost
  Eigen::Index dimensions = 0;
  Eigen::Index bandwidths = 0;                      // the variables but for the reciprocal
  std::map<std::uint32_t, Eigen::Index> sums = {};  // set of dimensions -> variable
  Eigen::VectorXd units = {};                       // by bandwidth: powers of two
  Region allowed = {};                              // of bandwidths
  double scale = 1;
  double time_scale = 1;
  double cost_scale = 1;
  std::vector<Term> terms = {};  // unlike ones; none where nothing is sent

  // Where there are terms:
  Region region = {};             // of all variables
  std::vector<bool> pinned = {};  // variables that can only be 0, which the program leaves out
  solver::MinMaxProgram program = {};
  Eigen::VectorXd start = {};
  std::vector<std::size_t> equation_rows = {};    // of region, by equation of the program
  std::vector<std::size_t> inequality_rows = {};  // likewise

  Eigen::VectorXd costs() const;  // dollars per unit over cost_scale, by bandwidth
  double unit_of(Eigen::Index variable) const { return variable < bandwidths ? units(variable) : 1; }
  // Of values of all variables the program's, and the other way around.
  Eigen::VectorXd kept(const Eigen::VectorXd& all) const;
  Eigen::VectorXd with_pinned(const Eigen::VectorXd& kept) const;
};

// Throws Error{usage} as solve(DesignProblem) does. The problem outlives the form.
ConvexForm convex_form(const DesignProblem&);

// The problem that was solved, in GB/s, bytes and dollars, with the weights and prices that prove the bound.
Certificate certificate(const ConvexForm&, const solver::MinMaxSolution&);

}  // namespace ranvier::plan
