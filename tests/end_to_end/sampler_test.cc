#include "integrations/trainer/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "ranvier/error.h"
#include "ranvier/server.h"
#include "ranvier/sync.h"

namespace ranvier::trainer {
namespace {

std::vector<std::int64_t> all_of(Sampler& sampler, std::size_t step) {
  const auto samples = sampler.part(step, 0, sampler.size(step));
  return {samples.begin(), samples.end()};
}

void expect_each_once(std::vector<std::int64_t> taken, std::size_t samples) {
  std::sort(taken.begin(), taken.end());
  std::vector<std::int64_t> each(samples);
  std::iota(each.begin(), each.end(), std::int64_t{0});
  ASSERT_EQ(taken, each);
}

TEST(Sampler, ItsLastStepHasWhatIsLeftOfAnEpoch) {
  Sampler sampler(1000, 7, 4, 1);
  EXPECT_EQ(sampler.steps_per_epoch(), 36U);
  EXPECT_EQ(sampler.size(34), 28U);
  EXPECT_EQ(sampler.size(35), 1000 - 35 * 28U);
  EXPECT_EQ(sampler.size(36), 28U);
  EXPECT_EQ(sampler.before(35), 35 * 28U);
  EXPECT_EQ(sampler.before(37), 1028U);
  EXPECT_EQ(Sampler(1000, 25, 4, 1).steps_per_epoch(), 10U);
  EXPECT_EQ(Sampler(1000, 25, 4, 1).size(9), 100U);
}

TEST(Sampler, ItsStepsAreCountedBySamples) {
  const Sampler sampler(1000, 7, 4, 1);
  for (std::size_t step = 0; step < 100; ++step)
    EXPECT_DOUBLE_EQ(sampler.steps(sampler.before(step)), static_cast<double>(step));
  EXPECT_DOUBLE_EQ(sampler.steps(sampler.before(3) + 7), 3.25);
  EXPECT_LT(sampler.steps(sampler.before(36) - 1), 36.0);
}

// As workers in step with one another take them, by shares that change with every step, some of them of no sample.
TEST(Sampler, AnEpochHasEachSampleOnceHoweverOftenSharesChange) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> exponent(-4, 4);
  for (int round = 0; round < 60; ++round) {
    const std::size_t world = 1 + random() % 9, batch = 1 + random() % 12, samples = world * batch + random() % 900;
    Sampler sampler(samples, batch, world, 3);
    for (std::size_t step = 0; step < 2 * sampler.steps_per_epoch();) {
      std::vector<std::int64_t> taken;
      do {
        std::vector<double> speeds(world);
        for (double& speed : speeds) speed = std::exp2(exponent(random));
        std::size_t first = 0;
        for (const std::size_t share : share_alike(sampler.size(step), share_by_speed(world * batch, speeds))) {
          const auto part = sampler.part(step, first, share);
          taken.insert(taken.end(), part.begin(), part.end());
          first += share;
        }
      } while (++step % sampler.steps_per_epoch() != 0);
      expect_each_once(taken, samples);
    }
  }
}

// As workers at their own pace take them, from one evaluation to the next, which may be in the middle of an epoch.
TEST(Sampler, AnEpochHasEachSampleOnceWhoeverAsksForHowMany) {
  std::mt19937 random(6);
  for (int round = 0; round < 60; ++round) {
    const auto world = static_cast<Rank>(1 + random() % 6);
    const std::size_t batch = 1 + random() % 12;
    const std::size_t step = batch * static_cast<std::size_t>(world), samples = step + random() % 900;
    Sampler sampler(samples, batch, static_cast<std::size_t>(world), 3);
    SampleGate gate(world, {}, 0);
    std::vector<std::int64_t> taken;
    for (std::size_t steps = 1; steps <= 2 * sampler.steps_per_epoch(); ++steps) {
      const bool is_epoch_end = steps % sampler.steps_per_epoch() == 0;
      if (random() % 3 > 0 && !is_epoch_end) continue;
      for (bool is_over = false; !is_over;) {
        gate.asks(static_cast<Rank>(random() % static_cast<std::size_t>(world)), sampler.before(steps),
                  1 + random() % (2 * batch));
        const auto start = gate.decide().at(0).start;
        const auto part = sampler.from(start.first, start.count);
        taken.insert(taken.end(), part.begin(), part.end());
        is_over = start.count == 0;
      }
      if (!is_epoch_end) continue;
      expect_each_once(taken, samples);
      taken.clear();
    }
  }
}

TEST(Sampler, AStepIsTheSameWhateverWasAskedBefore) {
  Sampler in_order(500, 5, 2, 9);
  std::vector<std::vector<std::int64_t>> all;
  for (std::size_t step = 0; step < 120; ++step) all.push_back(all_of(in_order, step));
  Sampler backwards(500, 5, 2, 9);
  for (std::size_t step = 120; step-- > 0;) ASSERT_EQ(all_of(backwards, step), all[step]) << "step " << step;
}

TEST(Sampler, EpochsAndSeedsDiffer) {
  Sampler one(500, 10, 1, 1), two(500, 10, 1, 2), high(500, 10, 1, (std::uint64_t{1} << 32) + 1);
  EXPECT_NE(all_of(one, 0), all_of(one, one.steps_per_epoch()));
  EXPECT_NE(all_of(one, 0), all_of(two, 0));
  EXPECT_NE(all_of(one, 0), all_of(high, 0));
}

TEST(Sampler, TheOrderIsTheSameOnEveryMachine) {
  Sampler sampler(10, 10, 1, 0);
  const std::vector<std::int64_t> order = all_of(sampler, 0);
  std::vector<std::int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_EQ(sorted[static_cast<std::size_t>(i)], i);
  EXPECT_EQ(order, (std::vector<std::int64_t>{6, 3, 2, 1, 7, 5, 8, 4, 0, 9}));
}

TEST(Sampler, TooFewSamplesForOneStepAreRefused) {
  EXPECT_NO_THROW(Sampler(64, 32, 2, 0));
  EXPECT_THROW(Sampler(63, 32, 2, 0), Error);
}

}  // namespace
}  // namespace ranvier::trainer
