// How the samples of a step are shared among the workers: evenly, or by how fast each has been.
#pragma once

#include <cstddef>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/sync.h"
#include "ranvier/worker_speeds.h"

namespace ranvier::trainer {

class WorkShares {
 public:
  // `total`: samples of a step. `workers`: the first ranks; others, which only serve, take none.
  WorkShares(Communicator& comm, std::size_t total, std::size_t workers);

  const std::vector<std::size_t>& all() const { return shares_; }
  std::size_t total() const { return total_; }
  std::size_t own() const { return shares_[static_cast<std::size_t>(comm_.rank())]; }
  // Of a step that has so many samples, fewer than usual at the end of an epoch.
  std::vector<std::size_t> of(std::size_t samples) const { return share_alike(samples, shares_); }

  // Shares in proportion to speed, by rank, as far as speeds have changed: measured once more.
  void follow(const std::vector<PaceReport>& measured);
  // Shares in proportion to these.
  void give(const std::vector<double>& speeds);
  void even();
  // As a checkpoint has this rank's; all ranks call.
  void restore(std::size_t own);

 private:
  Communicator& comm_;
  const std::size_t total_;
  const std::vector<std::size_t> even_;
  std::vector<std::size_t> shares_;  // by rank
  WorkerSpeeds speeds_;
};

}  // namespace ranvier::trainer
