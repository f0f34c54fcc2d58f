// How fast a worker computes, and what makes it slower: a cluster of unequal machines on one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "ranvier/unequal_workers.h"
#include "ranvier/worker_speeds.h"

namespace ranvier::trainer {

// Around each step: begin(), the forward pass, before_backward(), the backward pass, end(). A step lasts so many times
// what it computes as its worker is slow, of which it sleeps what computing and waiting for a core leave. Computing is
// counted on the processor, so that workers that share a core do not take each other for slow; or it is given, in
// `sample_ms`, since processor time grows, too, where workers share a cache.
class Pace {
 public:
  // `sample_ms`: what a sample takes at speed 1; 0: what is measured.
  Pace(Slowness slowness, double sample_ms) : slowness_(std::move(slowness)), sample_ms_(sample_ms) {}
  ~Pace();
  Pace(const Pace&) = delete;
  Pace& operator=(const Pace&) = delete;

  // `step`: of everybody's; `samples`: of this worker in it.
  void begin(std::uint64_t step, std::size_t samples);
  // Sleeps, here so that the gradients are late too and not only the parameters.
  void before_backward();
  void end();
  // In the last step.
  std::chrono::nanoseconds slept() const { return slept_; }
  // What steps last where no core has to be waited for.
  PaceReport report() { return steps_.report(); }

 private:
  Slowness slowness_;
  double sample_ms_;
  struct Moment {
    std::chrono::nanoseconds computed;  // by this thread
    std::chrono::nanoseconds waited;    // by it for a core
    Moment operator-(const Moment& other) const { return {computed - other.computed, waited - other.waited}; }
  };
  Moment now();
  // What the step takes at speed 1 that has computed so long.
  std::chrono::nanoseconds at_full_speed(std::chrono::nanoseconds computed) const;

  int statistics_ = -1;  // of the thread that begins steps, once one has
  std::uint64_t step_ = 0;
  double samples_ = 0;       // of it
  double slowness_now_ = 1;  // of this step
  Moment began_{};
  Moment backward_began_{};
  Moment backward_{};  // of the step before: what this one will take
  std::chrono::nanoseconds slept_{};
  RecentSteps steps_;
};

}  // namespace ranvier::trainer
