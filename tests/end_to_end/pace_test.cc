#include "integrations/trainer/pace.h"

#include <gtest/gtest.h>

namespace ranvier::trainer {
namespace {

double compute() {
  double sum = 0;
  for (int i = 1; i < 200'000; ++i) sum += 1.0 / i;
  return sum;
}

PaceReport run(const UnequalWorkers& workers, std::uint64_t steps) {
  Pace pace({workers, 0, 0});
  double sum = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    pace.begin(step);
    sum += compute();
    pace.before_backward();
    pace.end(4);
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

TEST(Pace, AWorkerThatIsAlwaysSlowIsNotLate) {
  EXPECT_LT(run({.speeds = {0.05}}, 16).late_share, 0.25);
  EXPECT_EQ(Pace({{}, 0, 0}).report().seconds_per_sample, 0);
}

}  // namespace
}  // namespace ranvier::trainer
