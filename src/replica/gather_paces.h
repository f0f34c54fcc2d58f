// What every rank's steps say of its pace, told to all.
#pragma once

#include <array>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/worker_speeds.h"

namespace ranvier::replica {

// By rank. All ranks call.
inline std::vector<PaceReport> gather_paces(Communicator& comm, const PaceReport& own,
                                            const CollectiveOptions& options = {}) {
  const std::array<double, 5> mine{own.seconds_per_sample, own.error, own.steps, own.late_share, own.late_factor};
  std::vector<double> all(mine.size() * static_cast<std::size_t>(comm.world()));
  comm.all_gather(mine, all, options);
  std::vector<PaceReport> reports;
  for (std::size_t at = 0; at < all.size(); at += mine.size())
    reports.push_back({.seconds_per_sample = all[at],
                       .error = all[at + 1],
                       .steps = all[at + 2],
                       .late_share = all[at + 3],
                       .late_factor = all[at + 4]});
  return reports;
}

}  // namespace ranvier::replica
