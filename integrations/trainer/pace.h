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
  // And from step `from` until before `to` all are so many times as long.
  struct Straggle {
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    double factor = 1;
  };
  std::vector<Straggle> straggles = {};
};

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
  explicit Pace(const PaceSettings& settings) : settings_(settings), random_(settings.seed) {}

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
  const PaceSettings settings_;
  std::mt19937_64 random_;
  double straggling_ = 1;
  std::chrono::nanoseconds began_{};
  std::chrono::nanoseconds backward_began_{};
  std::chrono::nanoseconds backward_{};  // of the step before: what this one will take
  std::chrono::nanoseconds slept_{};
  std::vector<double> times_;  // a sample
  bool is_warm_up_ = true;
};

}  // namespace ranvier::trainer
