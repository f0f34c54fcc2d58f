// How fast a worker computes, and what makes it slower: a cluster of unequal machines on one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ranvier/unequal_workers.h"

namespace ranvier::trainer {

// What computing has taken lately.
struct PaceReport {
  double seconds_per_sample = 0;  // the median step's; 0 where there was no step
  // So many of the steps took more than twice that, and on average so many times it.
  double late_share = 0;
  double late_factor = 1;
};

// Around each step: begin(), the forward pass, before_backward(), the backward pass, end(samples). Time is counted on
// the processor, so that workers that share a core do not take each other for slow.
class Pace {
 public:
  explicit Pace(Slowness slowness) : slowness_(std::move(slowness)) {}

  // `step`: of everybody's.
  void begin(std::uint64_t step);
  // Sleeps, here so that the gradients are late too and not only the parameters.
  void before_backward();
  void end(std::size_t samples);
  // Of all since the last call, sleep included; the very first steps, of which memory and caches are new, do not count
  // where there are others.
  PaceReport report();

 private:
  static constexpr std::ptrdiff_t warm_up = 3;
  Slowness slowness_;
  std::uint64_t step_ = 0;
  std::chrono::nanoseconds began_{};
  std::chrono::nanoseconds backward_began_{};
  std::chrono::nanoseconds backward_{};  // of the step before: what this one will take
  std::chrono::nanoseconds slept_{};
  std::vector<double> times_;  // a sample
  bool is_warm_up_ = true;
};

}  // namespace ranvier::trainer
