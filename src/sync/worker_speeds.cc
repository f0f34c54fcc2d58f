#include "ranvier/worker_speeds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace ranvier {
namespace {

constexpr std::size_t warm_up = 3;
constexpr std::size_t shortest_window = 8;
constexpr std::size_t longest_window = 32;
constexpr double late = 2;  // times what is usual
// What steps differ by before any have been seen, which counts for as many of them: a judgement.
constexpr double usual_spread = 0.1;
constexpr double seen_before = 3;

constexpr double certain = 2;   // standard errors
constexpr double settled = 24;  // steps

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// At most `count`, from the first on, at equal distances.
std::vector<double> thinned(const std::vector<double>& all, std::size_t count) {
  if (all.size() <= count) return all;
  std::vector<double> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(all[i * all.size() / count]);
  return some;
}

// Whether any two differ by more than the tolerance from what these are to one another, for certain.
bool have_parted(std::span<const PaceReport> reports, std::span<const double> from) {
  double fastest = -std::numeric_limits<double>::infinity();
  double slowest = std::numeric_limits<double>::infinity();
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const PaceReport& each = reports[rank];
    if (each.steps == 0) continue;
    const double faster = -std::log(each.seconds_per_sample * from[rank]);
    fastest = std::max(fastest, faster - certain * each.error);
    slowest = std::min(slowest, faster + certain * each.error);
  }
  return fastest - slowest > std::log(1 + WorkerSpeeds::tolerance);
}

}  // namespace

PaceReport pace_of(std::vector<double> times) {
  if (times.empty()) return {};
  // Where the clock has seen nothing.
  for (double& each : times) each = std::max(each, 1e-12);
  std::ranges::sort(times);
  const double usual = times[(times.size() - 1) * 2 / 5];
  const auto first_late = std::ranges::upper_bound(times, late * usual);
  const std::span in_time(times.begin(), first_late);
  const std::span too_late(first_late, times.end());

  PaceReport report{.seconds_per_sample = in_time[(in_time.size() - 1) / 2],
                    .steps = static_cast<double>(times.size()),
                    .late_share = static_cast<double>(too_late.size()) / static_cast<double>(times.size())};
  if (!too_late.empty()) report.late_factor = mean_of(too_late) / report.seconds_per_sample;
  double squares = seen_before * usual_spread * usual_spread;
  for (const double each : in_time) squares += std::pow(std::log(each / report.seconds_per_sample), 2);
  const auto count = static_cast<double>(in_time.size());
  constexpr double of_median = 1.2533;  // against that of the mean, where steps are normally distributed
  report.error = of_median * std::sqrt(squares / (seen_before + count - 1) / count);
  return report;
}

void RecentSteps::add(double seconds_per_sample) {
  if (first_.size() < warm_up) {
    first_.push_back(seconds_per_sample);
    return;
  }
  if (seen_++ % stride_ != 0) return;
  now_.push_back(seconds_per_sample);
  if (now_.size() < 2 * longest_window) return;
  now_ = thinned(now_, longest_window);
  stride_ *= 2;
}

PaceReport RecentSteps::report() {
  const bool is_over = now_.size() >= shortest_window;
  if (is_over && before_.size() == windows) before_.pop_front();
  std::vector<double> all;
  for (const auto& window : before_) all.insert(all.end(), window.begin(), window.end());
  const auto last = thinned(now_, longest_window);
  all.insert(all.end(), last.begin(), last.end());
  if (is_over) {
    before_.push_back(last);
    now_.clear();
    seen_ = 0;
    stride_ = 1;
  }
  if (all.size() <= warm_up) all.insert(all.end(), first_.begin(), first_.end());
  return pace_of(std::move(all));
}

bool WorkerSpeeds::add(std::span<const PaceReport> reports) {
  std::vector<double> measured;
  double fewest = std::numeric_limits<double>::infinity();
  for (const PaceReport& each : reports) {
    fewest = std::min(fewest, each.steps);
    if (each.steps > 0) measured.push_back(1 / each.seconds_per_sample);
  }
  if (measured.empty()) return false;
  const double known = mean_of(measured);
  measured.clear();
  for (const PaceReport& each : reports) measured.push_back(each.steps > 0 ? 1 / each.seconds_per_sample : known);
  mean_ = mean_of(measured);

  const bool is_settled = !held_.empty() && steps_ >= settled;
  ++windows_;
  if (is_settled && (windows_ < RecentSteps::windows || !have_parted(reports, held_))) return false;
  steps_ = fewest;
  std::vector<double> next(reports.size(), 1);
  // What all of them have in common, such as a clock that is throttled on all, changes nothing.
  if (have_parted(reports, next))
    std::ranges::transform(measured, next.begin(), [this](double each) { return each / mean_; });
  const bool has_changed = next != held_;
  if (has_changed) windows_ = 0;
  held_ = std::move(next);
  return has_changed;
}

std::vector<double> WorkerSpeeds::speeds() const {
  std::vector<double> all = held_;
  for (double& each : all) each *= mean_;
  return all;
}

}  // namespace ranvier
