#include "integrations/trainer/pace.h"

#include <gtest/gtest.h>

#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace ranvier::trainer {
namespace {

double compute() {
  static thread_local volatile int first = 1;  // or a compiler that sees through it all computes once for many calls
  double sum = 0;
  for (int i = first; i < 200'000; ++i) sum += 1.0 / i;
  return sum;
}

PaceReport run(const UnequalWorkers& workers, std::uint64_t steps) {
  Pace pace({workers, 0, 0}, 0);
  double sum = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    pace.begin(step, 4);
    sum += compute();
    pace.before_backward();
    pace.end();
  }
  EXPECT_GT(sum, 0);
  return pace.report();
}

// What is slept follows from what was computed, so these hold on any machine, however busy: a step may be late by
// accident as well, and none is early.
TEST(Pace, AStragglerIsLateInItsStepsOnly) {
  const PaceReport report = run({.stragglers = {{.worker = 0, .from = 4, .to = 8, .factor = 40}}}, 16);
  EXPECT_GE(report.late_share, 4.0 / 16);
  EXPECT_GT(report.late_factor, 2);
}

std::chrono::nanoseconds slept(double speed) {
  Pace pace({{.speeds = {speed}}, 0, 0}, 0);
  pace.begin(0, 4);
  double sum = 0;
  for (int i = 0; i < 100; ++i) sum += compute();
  EXPECT_GT(sum, 0);
  pace.before_backward();
  pace.end();
  return pace.slept();
}

// On a machine of its own it would have computed meanwhile. Half of a core that two share is no less than it is slow.
TEST(Pace, WhoHasWaitedForACoreSleepsLess) {
  EXPECT_GT(slept(0.1).count(), 0);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> ends = false;
  std::thread rival([&] {  // on that core, too
    while (!ends) compute();
  });
  EXPECT_EQ(slept(0.8).count(), 0);
  ends = true;
  rival.join();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Pace, AWorkerThatIsAlwaysSlowIsNotLate) {
  EXPECT_LT(run({.speeds = {0.05}}, 16).late_share, 0.25);
  EXPECT_EQ(Pace({{}, 0, 0}, 0).report().seconds_per_sample, 0);
}

TEST(Pace, ASampleLastsWhatIsSaidWhateverComputingItTakes) {
  Pace pace({{.speeds = {0.5}, .stragglers = {{.worker = 0, .from = 1, .to = 2, .factor = 3}}}, 0, 0}, 2);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto began = std::chrono::steady_clock::now();
    pace.begin(step, 5);  // 10 ms at full speed
    EXPECT_GT(compute(), 0);
    pace.before_backward();
    pace.end();
    EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(step == 0 ? 18 : 54));
  }
  EXPECT_DOUBLE_EQ(pace.report().seconds_per_sample, 0.004);
}

}  // namespace
}  // namespace ranvier::trainer
