// Measuring worlds side by side, on worlds whose times are made up.
#include "bench/sampling.h"

#include <gtest/gtest.h>

#include "bench/made_up_world.h"

namespace ranvier::bench {
namespace {

constexpr Sampling quick{.samples = 9, .checks = 1, .iterations = 10, .warmups = 2};
const Job job{.count = 100, .in_place = true};

TEST(Sampling, ComparesNeighboursSoThatAChangeOfSpeedFavoursNobody) {
  // The speed changes threefold, and stays for 20 jobs: several pairs lie wholly within.
  Machine machine{.speed = [](std::size_t at) { return at / 20 % 2 == 0 ? 1.0 : 3.0; }};
  MadeUpWorld ours(machine, "ranvier", 1e-3), other(machine, "mpi", 2e-3);
  World* const baselines[]{&other};
  Sampling sampling = quick;
  sampling.samples = 51;
  const Row row = measure(ours, baselines, job, sampling);
  EXPECT_DOUBLE_EQ(row.baselines[0].ratio.median, 2.0);
  EXPECT_DOUBLE_EQ(row.ours.seconds.min, 1e-3);
}

TEST(Sampling, AlternatesSampleBySampleAndWhoGoesFirst) {
  Machine machine;
  MadeUpWorld ours(machine, "ranvier", 1e-3), mpi(machine, "mpi", 2e-3), gloo(machine, "gloo", 3e-3);
  World* const baselines[]{&mpi, &gloo};
  Sampling sampling = quick;
  sampling.samples = 2;
  measure(ours, baselines, job, sampling);
  EXPECT_EQ(machine.order, "rmgrmrgmrgr");  // the checks, and two samples of everything
}

TEST(Sampling, RepeatsUntilASampleIsLongEnough) {
  Machine machine;
  MadeUpWorld ours(machine, "ranvier", 1e-6);
  Sampling sampling;
  sampling.target = std::chrono::milliseconds(4);
  const Row row = measure(ours, {}, job, sampling);
  EXPECT_GE(row.ours.iterations, 2000);
  EXPECT_LE(row.ours.iterations, 8000);
  EXPECT_EQ(ours.jobs.back().warmups, row.ours.iterations / 10);
}

TEST(Sampling, TakesOneOfWhatIsLongEnoughAlready) {
  Machine machine;
  MadeUpWorld ours(machine, "ranvier", 0.1);
  EXPECT_EQ(measure(ours, {}, job, {}).ours.iterations, 1);
}

TEST(Sampling, OneSlowMomentDoesNotDecideHowOftenToRepeat) {
  Machine machine{.speed = [](std::size_t at) { return at == 1 ? 1000.0 : 1.0; }};  // job 0 is the check
  MadeUpWorld ours(machine, "ranvier", 1e-5);
  EXPECT_GE(measure(ours, {}, job, {}).ours.iterations, 200);
}

TEST(Sampling, RunsAsOftenAsItIsTold) {
  Machine machine;
  MadeUpWorld ours(machine, "ranvier", 1e-3);
  measure(ours, {}, job, quick);
  ASSERT_EQ(ours.jobs.size(), 1 + 9);
  EXPECT_EQ(ours.jobs[0].fill, Fill::varied);  // the check
  EXPECT_EQ(ours.jobs[0].iterations, 1);
  EXPECT_EQ(ours.jobs[1].fill, Fill::zeros);  // a sum in place
  EXPECT_EQ(ours.jobs[1].iterations, 10);
  EXPECT_EQ(ours.jobs[1].warmups, 2);
}

TEST(Sampling, ChecksAsOftenAsItIsTold) {
  for (const std::uint64_t checks : {0, 1, 3}) {
    Machine machine;
    MadeUpWorld ours(machine, "ranvier", 1e-3);
    ours.always.wrong = 1;
    Sampling sampling = quick;
    sampling.checks = checks;
    EXPECT_EQ(measure(ours, {}, job, sampling).ours.wrong, checks + 9);
    EXPECT_EQ(ours.jobs.size(), checks + 9);
  }
}

TEST(Sampling, AddsUpWhatIsWrongInChecksAndSamples) {
  Machine machine;
  MadeUpWorld ours(machine, "ranvier", 1e-3), other(machine, "mpi", 1e-3);
  World* const baselines[]{&other};
  ours.always.wrong = 2;
  const Row row = measure(ours, baselines, job, quick);
  EXPECT_EQ(row.ours.wrong, 2 * (1 + 9));
  EXPECT_EQ(row.baselines[0].wrong, 0);
}

TEST(Sampling, GoesOnWithoutABaselineThatRefusesTheJob) {
  Machine machine;
  MadeUpWorld ours(machine, "ranvier", 1e-3), other(machine, "mpi", 1e-3);
  World* const baselines[]{&other};
  other.always.refusal = "MPI has no bf16";
  const Row row = measure(ours, baselines, job, quick);
  EXPECT_EQ(row.baselines[0].refusal, "MPI has no bf16");
  EXPECT_EQ(other.jobs.size(), 1);
  EXPECT_DOUBLE_EQ(row.ours.seconds.median, 1e-3);
}

TEST(Spread, InterpolatesBetweenNeighbours) {
  const Spread spread = spread_of({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(spread.min, 1);
  EXPECT_DOUBLE_EQ(spread.p25, 1.75);
  EXPECT_DOUBLE_EQ(spread.median, 2.5);
  EXPECT_DOUBLE_EQ(spread.p75, 3.25);
  EXPECT_DOUBLE_EQ(spread_of({7}).p75, 7);
}

}  // namespace
}  // namespace ranvier::bench
