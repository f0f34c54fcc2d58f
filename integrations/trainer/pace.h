// How fast a worker computes, and what makes it slower: a cluster of unequal machines on one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ranvier/unequal_workers.h"
#include "ranvier/worker_speeds.h"

namespace ranvier::trainer {

// Around each step: begin(), the forward pass, before_backward(), the backward pass, end(samples). Computing is counted
// on the processor, so that workers that share a core do not take each other for slow: a step lasts so many times what
// it computes as its worker is slow, of which it sleeps what waiting for a core leaves.
class Pace {
 public:
  explicit Pace(Slowness slowness) : slowness_(std::move(slowness)) {}
  ~Pace();
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  // `step`: of everybody's.
  void begin(std::uint64_t step);
  // Sleeps, here so that the gradients are late too and not only the parameters.
  void before_backward();
  void end(std::size_t samples);
  // In the last step.
  std::chrono::nanoseconds slept() const { return slept_; }
  // What steps last where no core has to be waited for.
  PaceReport report() { return steps_.report(); }

 private:
  Slowness slowness_;
  struct Moment {
    std::chrono::nanoseconds computed;  // by this thread
    std::chrono::nanoseconds waited;    // by it for a core
    Moment operator-(const Moment& other) const { return {computed - other.computed, waited - other.waited}; }
  };
  Moment now();

  int statistics_ = -1;  // of the thread that begins steps, once one has
  std::uint64_t step_ = 0;
  double slowness_now_ = 1;  // of this step
  Moment began_{};
  Moment backward_began_{};
  Moment backward_{};  // of the step before: what this one will take
  std::chrono::nanoseconds slept_{};
  RecentSteps steps_;
};

}  // namespace ranvier::trainer
