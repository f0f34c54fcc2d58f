#include "report/bottleneck.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace ranvier::cli {
namespace {

constexpr double worth_naming = 0.25;

}  // namespace

StepShares step_shares(std::span<const double> exposed, bool in_step) {
  if (exposed.empty()) return {};
  const double mean = std::accumulate(exposed.begin(), exposed.end(), 0.0) / static_cast<double>(exposed.size());
  const auto least = std::min_element(exposed.begin(), exposed.end());
  const double communication = in_step ? *least : mean;
  return {.computing = 1 - mean,
          .communication = communication,
          .waiting = mean - communication,
          .slowest = static_cast<int>(least - exposed.begin())};
}

std::string bottleneck(const StepShares& shares) {
  const double most = std::max(shares.communication, shares.waiting);
  if (most < worth_naming) return fmt::format("computing ({:.0f} %)", shares.computing * 100);
  if (shares.communication >= shares.waiting) return fmt::format("communication ({:.0f} %)", most * 100);
  return fmt::format("rank {}, for which others wait ({:.0f} %)", shares.slowest, most * 100);
}

}  // namespace ranvier::cli
