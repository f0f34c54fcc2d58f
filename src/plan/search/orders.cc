#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "plan/solver/linear_program.h"
#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {

std::vector<OrderShare> best_orders(const Communication& communication, const GroupSizes& group,
                                    std::span<const double> bandwidth_gbps) {
  constexpr std::size_t most_dimensions = 6;
  constexpr double least_share = 1e-6;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < group.size(); ++i)
    if (group[i] > 1) order.push_back(i);
  if (order.size() > most_dimensions)
    throw Error(ErrorKind::usage,
                fmt::format("a group of {} dimensions has too many orders to choose from", order.size()));
  if (order.empty()) return {};

  // Columns: a share for each order, then the time; the busiest dimension decides it.
  std::vector<OrderShare> orders;
  std::vector<std::vector<double>> times;  // by order, then spanned dimension
  const std::vector<std::size_t> spanned = order;
  do {
    double left = 1;
    std::map<std::size_t, double> sent;
    for (const std::size_t i : order) {
      sent[i] = left * (group[i] - 1) / group[i] / bandwidth_gbps[i];
      left /= group[i];
    }
    orders.push_back({order, 0});
    times.emplace_back();
    for (const std::size_t i : spanned) times.back().push_back(sent[i]);
  } while (communication.collective != Collective::all_to_all && std::next_permutation(order.begin(), order.end()));

  const auto columns = static_cast<Eigen::Index>(orders.size()) + 1;
  const auto rows = static_cast<Eigen::Index>(spanned.size());
  double slowest = 0;
  for (const auto& one : times) slowest = std::max(slowest, *std::max_element(one.begin(), one.end()));
  solver::LinearProgram program{.objective = Eigen::VectorXd::Unit(columns, columns - 1),
                                .equal = Eigen::MatrixXd::Ones(1, columns),
                                .equal_to = Eigen::VectorXd::Ones(1),
                                .at_most = Eigen::MatrixXd(rows, columns),
                                .limit = Eigen::VectorXd::Zero(rows)};
  program.equal(0, columns - 1) = 0;
  for (Eigen::Index row = 0; row < rows; ++row) {
    for (Eigen::Index column = 0; column + 1 < columns; ++column)
      program.at_most(row, column) = times[static_cast<std::size_t>(column)][static_cast<std::size_t>(row)] / slowest;
    program.at_most(row, columns - 1) = -1;
  }
  const auto found = solver::solve(program);
  if (found.status != solver::LinearSolution::Status::optimal)
    throw Error(ErrorKind::internal, "no mix of chunk orders was found; report the design");
  std::vector<OrderShare> used;
  for (std::size_t p = 0; p < orders.size(); ++p)
    if (const double share = found.x(static_cast<Eigen::Index>(p)); share > least_share)
      used.push_back({std::move(orders[p].dimensions), share});
  return used;
}

}  // namespace ranvier
