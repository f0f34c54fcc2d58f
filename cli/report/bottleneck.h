// What keeps a training run from being faster, by how long its workers wait.
#pragma once

#include <span>
#include <string>

namespace ranvier::cli {

// Of the time of a step, mean over the workers; 1 together. The worker that waits least is the slowest one: what it
// waits is communication, and what others wait beyond that they wait for it.
struct StepShares {
  double computing = 1;
  double communication = 0;
  double waiting = 0;  // for the worker `slowest`
  int slowest = 0;
};

// `exposed`: by rank, the share of its time from the end of backward until the averages are there. `groups`: of workers
// at their own pace, which wait for no other one, by rank who exchanges together; who only serves does not count.
StepShares step_shares(std::span<const double> exposed, std::span<const int> groups);

// "communication (62 %)", "rank 3, for which others wait (38 %)"; "computing (90 %)" where neither takes a fourth.
std::string bottleneck(const StepShares& shares);

}  // namespace ranvier::cli
