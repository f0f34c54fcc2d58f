#include "integrations/trainer/work_shares.h"

#include <algorithm>
#include <array>

namespace ranvier::trainer {

namespace {

// 1 for each of the first `workers` ranks, and 0 for others.
std::vector<std::size_t> alike(std::size_t world, std::size_t workers) {
  std::vector<std::size_t> ones(world, 0);
  std::fill_n(ones.begin(), workers, 1);
  return ones;
}

}  // namespace

std::vector<PaceReport> collect(Communicator& comm, const PaceReport& own) {
  const std::array<double, 3> mine{own.seconds_per_sample, own.late_share, own.late_factor};
  std::vector<double> all(mine.size() * static_cast<std::size_t>(comm.world()));
  comm.all_gather(mine, all);
  std::vector<PaceReport> reports;
  for (std::size_t at = 0; at < all.size(); at += mine.size())
    reports.push_back({.seconds_per_sample = all[at], .late_share = all[at + 1], .late_factor = all[at + 2]});
  return reports;
}

std::vector<double> speeds_of(const std::vector<PaceReport>& reports) {
  std::vector<double> speeds;
  for (const auto& each : reports) speeds.push_back(1 / std::max(each.seconds_per_sample, 1e-12));
  return speeds;
}

WorkShares::WorkShares(Communicator& comm, std::size_t total, std::size_t workers)
    : comm_(comm),
      total_(total),
      even_(share_alike(total, alike(static_cast<std::size_t>(comm.world()), workers))),
      shares_(even_) {}

void WorkShares::follow(const std::vector<double>& measured) {
  if (drift_.add(measured)) give(drift_.speeds());
}

void WorkShares::give(const std::vector<double>& speeds) { shares_ = share_by_speed(total_, speeds); }
void WorkShares::even() { shares_ = even_; }

void WorkShares::restore(std::size_t own) {
  const std::array<std::int64_t, 1> mine{static_cast<std::int64_t>(own)};
  std::vector<std::int64_t> all(shares_.size());
  comm_.all_gather(mine, all);
  shares_.assign(all.begin(), all.end());
}

}  // namespace ranvier::trainer
