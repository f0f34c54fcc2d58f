#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "ranvier/error.h"
#include "ranvier/sync.h"

namespace ranvier {

std::vector<std::size_t> share_by_speed(std::size_t total, std::span<const double> speeds, std::size_t least) {
  const std::size_t world = speeds.size();
  const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  if (world == 0 || total < world || !(sum > 0) || !std::isfinite(sum) ||
      std::ranges::any_of(speeds, [](double speed) { return !(speed > 0); }))
    throw Error(ErrorKind::usage, "samples are shared among workers of speeds above 0, at least one sample each");
  least = std::min(least, total / world);
  std::vector<std::size_t> shares;
  for (const double speed : speeds)
    shares.push_back(std::max(least, static_cast<std::size_t>(std::rint(static_cast<double>(total) * speed / sum))));
  // What rounding gave too much or too little is the largest share's: there it matters least.
  for (auto given = std::accumulate(shares.begin(), shares.end(), std::size_t{0}); given != total;) {
    auto& largest = *std::ranges::max_element(shares);
    if (given < total) {
      largest += total - given;
      given = total;
    } else {
      --largest;
      --given;
    }
  }
  return shares;
}

std::vector<std::size_t> share_alike(std::size_t total, std::span<const std::size_t> shares) {
  const auto all = std::accumulate(shares.begin(), shares.end(), std::size_t{0});
  std::vector<std::size_t> parts;
  std::size_t before = 0;
  std::size_t from = 0;
  for (const std::size_t share : shares) {
    before += share;
    const std::size_t to = (total * before + all - 1) / all;
    parts.push_back(to - std::exchange(from, to));
  }
  return parts;
}

// What all of them have in common, such as a clock that is throttled on all, changes no shares.
bool SpeedDrift::add(std::span<const double> measured) {
  mean_ = std::accumulate(measured.begin(), measured.end(), 0.0) / static_cast<double>(measured.size());
  std::vector<double> relative;
  for (const double each : measured) relative.push_back(each / mean_);
  if (held_.empty()) {
    held_ = std::move(relative);
    return true;
  }
  after_.push_back(std::move(relative));
  if (after_.size() < windows) return false;
  if (after_.size() > windows) after_.pop_front();
  std::vector<double> medians;
  bool has_changed = false;
  for (std::size_t worker = 0; worker < held_.size(); ++worker) {
    std::array<double, windows> of_worker{};
    std::ranges::transform(after_, of_worker.begin(), [&](const auto& window) { return window[worker]; });
    std::ranges::nth_element(of_worker, of_worker.begin() + windows / 2);
    medians.push_back(of_worker[windows / 2]);
    has_changed = has_changed || std::abs(medians.back() / held_[worker] - 1) > tolerance;
  }
  if (!has_changed) return false;
  held_ = std::move(medians);
  after_.clear();
  return true;
}

std::vector<double> SpeedDrift::speeds() const {
  std::vector<double> all = held_;
  for (double& each : all) each *= mean_;
  return all;
}

}  // namespace ranvier
