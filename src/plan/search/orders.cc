#include "plan/search/orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>

#include "plan/solver/linear_program.h"
#include "ranvier/design_search.h"
#include "ranvier/error.h"

namespace ranvier {

namespace {

// One order, and what it sends by dimension.
struct Way {
  std::vector<std::size_t> dimensions;
  std::map<std::size_t, double> sent;
};

// The shares of the ways that end first together on these bandwidths.
std::vector<double> best_shares(const std::vector<Way>& ways, std::span<const double> bandwidth_gbps) {
  // Columns: a share for each way, then the time; the busiest dimension decides it.
  const auto& spanned = ways.front().sent;
  const auto columns = static_cast<Eigen::Index>(ways.size()) + 1;
  const auto rows = static_cast<Eigen::Index>(spanned.size());
  double slowest = 0;
  for (const Way& way : ways)
    for (const auto& [dimension, bytes] : way.sent) slowest = std::max(slowest, bytes / bandwidth_gbps[dimension]);
  solver::LinearProgram program{.objective = Eigen::VectorXd::Unit(columns, columns - 1),
                                .equal = Eigen::MatrixXd::Ones(1, columns),
                                .equal_to = Eigen::VectorXd::Ones(1),
                                .at_most = Eigen::MatrixXd(rows, columns),
                                .limit = Eigen::VectorXd::Zero(rows)};
  program.equal(0, columns - 1) = 0;
  for (Eigen::Index column = 0; column + 1 < columns; ++column)
    for (Eigen::Index row = 0; const auto& [dimension, bytes] : ways[static_cast<std::size_t>(column)].sent)
      program.at_most(row++, column) = bytes / bandwidth_gbps[dimension] / slowest;
  for (Eigen::Index row = 0; row < rows; ++row) program.at_most(row, columns - 1) = -1;
  const auto found = solver::solve(program);
  if (found.status != solver::LinearSolution::Status::optimal)
    throw Error(ErrorKind::internal, "no mix of chunk orders was found; report the design");
  return {found.x.data(), found.x.data() + ways.size()};
}

}  // namespace

std::vector<OrderShare> best_orders(const Communication& communication, const GroupSizes& group,
                                    std::span<const double> bandwidth_gbps) {
  constexpr double least_share = 1e-6;
  constexpr std::array shrinking{Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather};
  if (std::ranges::find(shrinking, communication.collective) == shrinking.end()) return {};
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < group.size(); ++i)
    if (group[i] > 1) order.push_back(i);
  if (order.size() > plan::most_ordered_dimensions)
    throw Error(ErrorKind::usage,
                fmt::format("a group of {} dimensions has too many orders to choose from", order.size()));
  if (order.empty()) return {};

  std::vector<Way> ways;
  do {
    double left = 1;
    Way way{.dimensions = order, .sent = {}};
    for (const std::size_t i : order) {
      way.sent[i] = left * (group[i] - 1) / group[i];
      left /= group[i];
    }
    ways.push_back(std::move(way));
  } while (std::next_permutation(order.begin(), order.end()));

  const auto shares = best_shares(ways, bandwidth_gbps);
  std::vector<OrderShare> used;
  for (std::size_t p = 0; p < ways.size(); ++p)
    if (shares[p] > least_share) used.push_back({std::move(ways[p].dimensions), shares[p]});
  // Which grows, and sends in the last dimension what a reduce_scatter does in the first.
  if (communication.collective == Collective::all_gather)
    for (OrderShare& each : used) std::ranges::reverse(each.dimensions);
  return used;
}

namespace plan {

std::optional<std::vector<double>> bytes_in_best_orders(const TrafficTerm& term,
                                                        std::span<const double> bandwidth_gbps) {
  std::map<std::uint32_t, double> of_set{{0, 0}};
  std::uint32_t all = 0;
  for (const Load& load : term.loads) {
    of_set[load.dimensions] = load.bytes;
    all |= load.dimensions;
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < bandwidth_gbps.size(); ++i)
    if ((all >> i & 1) != 0) order.push_back(i);
  if (order.size() > most_ordered_dimensions || of_set.size() != std::size_t{1} << order.size()) return std::nullopt;
  if (of_set[all] <= 0) return std::vector<double>(bandwidth_gbps.size(), 0);

  // What a dimension sends behind those before it is what the rest carries with it, less what the rest does without.
  std::vector<Way> ways;
  do {
    Way way{.dimensions = order, .sent = {}};
    std::uint32_t rest = all;
    for (const std::size_t i : order) {
      const std::uint32_t behind = rest & ~(std::uint32_t{1} << i);
      way.sent[i] = of_set[rest] - of_set[behind];
      rest = behind;
    }
    ways.push_back(std::move(way));
  } while (std::next_permutation(order.begin(), order.end()));

  const auto shares = best_shares(ways, bandwidth_gbps);
  std::vector<double> bytes(bandwidth_gbps.size(), 0);
  for (std::size_t p = 0; p < ways.size(); ++p)
    for (const auto& [dimension, sent] : ways[p].sent) bytes[dimension] += shares[p] * sent;
  return bytes;
}

}  // namespace plan
}  // namespace ranvier
