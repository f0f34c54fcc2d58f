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

WorkShares::WorkShares(Communicator& comm, std::size_t total, std::size_t workers)
    : comm_(comm),
      total_(total),
      even_(share_alike(total, alike(static_cast<std::size_t>(comm.world()), workers))),
      shares_(even_) {}

void WorkShares::follow(const std::vector<PaceReport>& measured) {
  if (speeds_.add(measured)) give(speeds_.speeds());
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
