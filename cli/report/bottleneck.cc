#include "report/bottleneck.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "ranvier/server.h"

namespace ranvier::cli {
namespace {

constexpr double worth_naming = 0.25;

}  // namespace

StepShares step_shares(std::span<const double> exposed, std::span<const int> groups) {
  double sum = 0;
  std::vector<std::size_t> workers;
  for (std::size_t rank = 0; rank < exposed.size(); ++rank) {
    if (!trains(groups, rank)) continue;
    workers.push_back(rank);
    sum += exposed[rank];
  }
  if (workers.empty()) return {};
  const double mean = sum / static_cast<double>(workers.size());
  const std::size_t slowest =
      *std::min_element(workers.begin(), workers.end(),
                        [&](std::size_t one, std::size_t other) { return exposed[one] < exposed[other]; });
  const double communication = groups.empty() ? exposed[slowest] : mean;
  return {.computing = 1 - mean,
          .communication = communication,
          .waiting = mean - communication,
          .slowest = static_cast<int>(slowest)};
}

std::string bottleneck(const StepShares& shares) {
  const double most = std::max(shares.communication, shares.waiting);
  if (most < worth_naming) return fmt::format("computing ({:.0f} %)", shares.computing * 100);
  if (shares.communication >= shares.waiting) return fmt::format("communication ({:.0f} %)", most * 100);
  return fmt::format("rank {}, for which others wait ({:.0f} %)", shares.slowest, most * 100);
}

}  // namespace ranvier::cli
