#include "plan/solver/linear_program.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "ranvier/error.h"

namespace ranvier::solver {
namespace {

using Eigen::Index;

constexpr double zero = 1e-9;

// Rows: one a constraint. Columns: variables, a slack for each inequality, an artificial variable for each row, and the
// right side, which stays at least 0. The basis has one variable a row.
class Tableau {
 public:
  explicit Tableau(const LinearProgram& program)
      : variables_(program.objective.size()),
        slacks_(program.at_most.rows()),
        rows_(program.equal.rows() + program.at_most.rows()),
        cells_(Eigen::MatrixXd::Zero(rows_, variables_ + slacks_ + rows_ + 1)),
        basis_(static_cast<std::size_t>(rows_)) {
    for (Index row = 0; row < rows_; ++row) {
      const Index inequality = row - program.equal.rows();
      const bool equal = inequality < 0;
      cells_.row(row).head(variables_) = equal ? program.equal.row(row) : program.at_most.row(inequality);
      cells_(row, right()) = equal ? program.equal_to(row) : program.limit(inequality);
      const double largest = cells_.row(row).head(variables_).cwiseAbs().maxCoeff();
      if (largest > 0) cells_.row(row) /= largest;
      if (!equal) cells_(row, variables_ + inequality) = 1;
      if (cells_(row, right()) < 0) cells_.row(row) *= -1;
      cells_(row, artificial(row)) = 1;
      basis_[static_cast<std::size_t>(row)] = artificial(row);
    }
  }

  // Drives the artificial variables to zero; false where that cannot be.
  bool find_feasible() {
    Eigen::VectorXd cost = Eigen::VectorXd::Zero(right());
    cost.tail(rows_).setOnes();
    minimise(cost, right());
    double left = 0;
    double scale = 1;
    for (Index row = 0; row < rows_; ++row) {
      scale = std::max(scale, std::abs(cells_(row, right())));
      if (basis(row) >= artificial(0)) left += cells_(row, right());
    }
    if (left > zero * scale) return false;
    // An artificial variable that stays in the basis, at zero, leaves it for any column that can take its place; a row
    // that has none repeats other rows, and stays as it is.
    for (Index row = 0; row < rows_; ++row)
      for (Index column = 0; basis(row) >= artificial(0) && column < artificial(0); ++column)
        if (std::abs(cells_(row, column)) > zero) pivot(row, column);
    return true;
  }

  // False where there is no least value.
  bool minimise(const Eigen::VectorXd& cost, Index columns) {
    // Only rounding leads around in a circle: then what is cheaper by a small part of the largest cost is no better.
    constexpr int patience = 1000, most_pivots = 100'000;
    const double largest = std::max(1.0, cost.cwiseAbs().maxCoeff());
    for (int pivots = 0;; ++pivots) {
      const auto entering = find_entering(cost, columns, pivots < patience ? 0 : largest);
      if (!entering) return true;
      const auto leaving = pivots < patience ? find_stable_leaving(*entering) : find_leaving(*entering);
      if (!leaving) return false;
      if (pivots == most_pivots)
        throw Error(ErrorKind::internal, "a linear program does not end; report the design with its input");
      pivot(*leaving, *entering);
    }
  }

  Eigen::VectorXd solution() const {
    Eigen::VectorXd x = Eigen::VectorXd::Zero(variables_);
    for (Index row = 0; row < rows_; ++row)
      if (basis(row) < variables_) x(basis(row)) = std::max(0.0, cells_(row, right()));
    return x;
  }

  Index artificial(Index row) const { return variables_ + slacks_ + row; }

 private:
  Index right() const { return cells_.cols() - 1; }
  Index basis(Index row) const { return basis_[static_cast<std::size_t>(row)]; }

  // Bland: the first column that makes it cheaper, by more than rounding of what it is added up from: costs may be of
  // very unlike magnitude. `least` is a magnitude that all have at least.
  std::optional<Index> find_entering(const Eigen::VectorXd& cost, Index columns, double least) const {
    for (Index column = 0; column < columns; ++column) {
      double change = cost(column);
      double magnitude = std::abs(change);
      for (Index row = 0; row < rows_; ++row) {
        if (std::abs(cells_(row, column)) <= zero) continue;
        const double saved = cost(basis(row)) * cells_(row, column);
        change -= saved;
        magnitude += std::abs(saved);
      }
      if (change < -zero * std::max(magnitude, least)) return column;
    }
    return std::nullopt;
  }

  // Of the rows that limit the column first, or as soon but for rounding, the one with the largest number to divide by
  // (P. M. J. Harris: Pivot selection methods of the Devex LP code. Mathematical Programming 5 (1973)): where many
  // start at zero, two small ones in a row would leave no digit of the others.
  std::optional<Index> find_stable_leaving(Index column) const {
    constexpr double rounding = 1e-13;
    double soonest = std::numeric_limits<double>::infinity();
    for (Index row = 0; row < rows_; ++row)
      if (cells_(row, column) > zero)
        soonest = std::min(soonest, (std::max(0.0, cells_(row, right())) + rounding) / cells_(row, column));
    std::optional<Index> best;
    for (Index row = 0; row < rows_; ++row)
      if (cells_(row, column) > zero && cells_(row, right()) / cells_(row, column) <= soonest &&
          (!best || cells_(row, column) > cells_(*best, column)))
        best = row;
    return best;
  }

  // The row that limits the column first; of equal ones that with the first variable.
  std::optional<Index> find_leaving(Index column) const {
    std::optional<Index> best;
    double least = 0;
    for (Index row = 0; row < rows_; ++row) {
      if (cells_(row, column) <= zero) continue;
      const double ratio = cells_(row, right()) / cells_(row, column);
      if (best && (ratio > least || (ratio == least && basis(row) > basis(*best)))) continue;
      best = row;
      least = ratio;
    }
    return best;
  }

  void pivot(Index row, Index column) {
    cells_.row(row) /= cells_(row, column);
    for (Index other = 0; other < rows_; ++other)
      if (other != row && cells_(other, column) != 0) cells_.row(other) -= cells_(other, column) * cells_.row(row);
    basis_[static_cast<std::size_t>(row)] = column;
  }

  Index variables_;
  Index slacks_;
  Index rows_;
  Eigen::MatrixXd cells_;
  std::vector<Index> basis_;
};

}  // namespace

LinearSolution solve(const LinearProgram& program) {
  Tableau tableau(program);
  if (!tableau.find_feasible()) return {};
  Eigen::VectorXd cost = Eigen::VectorXd::Zero(tableau.artificial(program.equal.rows() + program.at_most.rows()));
  cost.head(program.objective.size()) = program.objective;
  if (!tableau.minimise(cost, tableau.artificial(0))) return {.status = LinearSolution::Status::unbounded, .x = {}};
  LinearSolution result{.status = LinearSolution::Status::optimal, .x = tableau.solution()};
  result.value = program.objective.dot(result.x);
  return result;
}

}  // namespace ranvier::solver
