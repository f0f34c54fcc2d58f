// How fast a worker computes, and what makes it slower: a cluster of unequal machines on one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ranvier/unequal_workers.h"
#include "ranvier/worker_speeds.h"

namespace ranvier::trainer {

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
  // Sleep included.
  PaceReport report() { return steps_.report(); }

 private:
  Slowness slowness_;
  std::uint64_t step_ = 0;
  std::chrono::nanoseconds began_{};
  std::chrono::nanoseconds backward_began_{};
  std::chrono::nanoseconds backward_{};  // of the step before: what this one will take
  std::chrono::nanoseconds slept_{};
  RecentSteps steps_;
};

}  // namespace ranvier::trainer
