// The bandwidths that a list of constraints allows.
#pragma once

#include <Eigen/Dense>
#include <optional>
#include <string>
#include <vector>

#include "plan/solver/linear_program.h"

namespace ranvier::plan {

// coefficients·x <= limit, or = limit.
struct Row {
  Eigen::VectorXd coefficients = {};
  bool equal = false;
  double limit = 0;
  std::string text = {};
};

struct Region {
  std::vector<Row> rows = {};
  Eigen::Index variables = 0;
};

// The least objective·x in the region, with x >= 0.
solver::LinearSolution minimise(const Region&, const Eigen::VectorXd& objective);

// A smallest set of rows that contradict each other, by their numbers; empty if there is a point that satisfies all.
std::vector<std::size_t> conflict(const Region&);

// Variables that can only be 0. The region is not empty.
std::vector<bool> pinned_to_zero(const Region&);

// The same region, written so that it has an inside: inequalities that can only hold with equality (b0 >= b1 and
// b1 >= b0) become equations. Also those that leave next to nothing, or contradict each other by as much (of rounded
// numbers, say): these are moved, by 1e-8 at most, to where there is a point that satisfies all of them. Equations that
// repeat others stay. Of a region that is not empty.
Region with_implied_equations(Region);

// A point that satisfies all equations and lies as far inside the inequalities and x > 0 as a linear program finds;
// none where nothing lies inside. Variables that are pinned are left at 0.
std::optional<Eigen::VectorXd> point_inside(const Region&, const std::vector<bool>& pinned);

// Rows of `matrix` that together have its rank.
std::vector<Eigen::Index> independent_rows(const Eigen::MatrixXd& matrix);

}  // namespace ranvier::plan
