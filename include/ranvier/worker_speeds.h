// How fast workers are, by what their steps have taken. A worker that was late now and then is not a slow one, and what
// chance may have made of a few steps is no difference: pure functions and state machines of numbers.
#pragma once

#include <cstddef>
#include <deque>
#include <span>
#include <vector>

namespace ranvier {

// What a worker's steps say of its pace. Jitter only ever adds: what more than two of five steps take is usual, those
// that take more than twice as long are late, and its pace is the median of the others.
struct PaceReport {
  double seconds_per_sample = 0;  // 0 where there was no step
  double error = 0;               // the standard error of its logarithm, about: how far off chance may have put it
  double steps = 0;               // that all this is of
  double late_share = 0;          // so many of them were late, …
  double late_factor = 1;         // … and took so many times as long
};
PaceReport pace_of(std::vector<double> seconds_per_sample);

// Of one worker: the steps of its last three windows. A report ends a window, unless that has fewer than eight steps
// and goes on; one counts for 32 at most, taken evenly from all that it had. The first three steps ever, for which
// memory and caches are new, count only as long as there are hardly any others.
class RecentSteps {
 public:
  static constexpr std::size_t windows = 3;

  void add(double seconds_per_sample);
  PaceReport report();

 private:
  std::vector<double> first_;
  std::vector<double> now_;  // the window that goes on: every `stride_`th of its `seen_` steps
  std::size_t seen_ = 0;
  std::size_t stride_ = 1;
  std::deque<std::vector<double>> before_;
};

// By what speeds samples are to be shared and groups formed, from one report of all workers to the next. All count as
// equally fast until two of them differ by more than a fifth for certain: even if each is off by two standard errors.
// Then their speeds are what was measured, again and again until that was 24 steps, and held from there on. They are
// others again where the ratio of two of them is off by more than a fifth, for certain, and no sooner than three
// windows after the last time: so what one window says, be it right or not, moves little, and a change is followed
// within three. tests/sync/worker_speeds_test.cc tries all that on random steps.
class WorkerSpeeds {
 public:
  static constexpr double tolerance = 0.2;

  // By rank; who has no steps yet counts as one of the middle. Whether speeds() are others now, as they are the first
  // time that anybody has any.
  bool add(std::span<const PaceReport> reports);
  // Samples a second, of which the mean is that of the last reports. None before the first.
  std::vector<double> speeds() const;

 private:
  std::vector<double> held_;  // against their mean
  double mean_ = 0;
  double steps_ = 0;         // that they rest on
  std::size_t windows_ = 0;  // since they were first held, or changed
};

}  // namespace ranvier
