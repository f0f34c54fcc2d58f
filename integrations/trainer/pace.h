// How fast a worker computes, and ways to make it slower: a cluster of unequal machines on one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace ranvier::trainer {

struct PaceSettings {
  double speed = 1;          // 0.5: a step's computing takes twice as long, the difference being slept
  double jitter_share = 0;   // so many of the steps …
  double jitter_factor = 1;  // … take this many times as long
  std::uint64_t seed = 0;    // of which steps these are
};

// Around each step: begin(), the forward pass, before_backward(), the backward pass, end(samples). Time is counted on
// the processor, so that workers that share a core do not take each other for slow.
class Pace {
 public:
  explicit Pace(const PaceSettings& settings) : settings_(settings), random_(settings.seed) {}

  void begin();
  // Sleeps, here so that the gradients are late too and not only the parameters.
  void before_backward();
  void end(std::size_t samples);
  // The median time a sample, sleep included, since the last call. 0 where there was no step.
  double seconds_per_sample();

 private:
  const PaceSettings settings_;
  std::mt19937_64 random_;
  std::chrono::nanoseconds began_{};
  std::chrono::nanoseconds backward_began_{};
  std::chrono::nanoseconds backward_{};  // of the step before: what this one will take
  std::chrono::nanoseconds slept_{};
  std::vector<double> times_;  // a sample
};

}  // namespace ranvier::trainer
