#include "integrations/trainer/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "ranvier/error.h"
#include "ranvier/sync.h"

namespace ranvier::trainer {
namespace {

std::vector<std::int64_t> taken(Sampler& sampler, std::size_t step, std::size_t rank) {
  const auto batch = sampler.batch(step, rank);
  return {batch.begin(), batch.end()};
}

TEST(Sampler, NoSampleIsSeenTwiceInAnEpochAndAllSharesAreEven) {
  for (const std::size_t world : {1U, 2U, 3U, 4U}) {
    Sampler sampler(1000, 7, world, 1);
    EXPECT_EQ(sampler.steps_per_epoch(), 1000 / (7 * world));
    std::set<std::int64_t> seen;
    std::size_t count = 0;
    for (std::size_t step = 0; step < sampler.steps_per_epoch(); ++step)
      for (std::size_t rank = 0; rank < world; ++rank)
        for (const auto sample : taken(sampler, step, rank)) {
          ++count;
          seen.insert(sample);
          ASSERT_GE(sample, 0);
          ASSERT_LT(sample, 1000);
        }
    EXPECT_EQ(seen.size(), count);
    EXPECT_EQ(count, sampler.steps_per_epoch() * world * 7);
  }
}

// As workers with shares by speed take them, which change with every step.
TEST(Sampler, NoSampleIsLostOrSeenTwiceHoweverOftenSharesChange) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> exponent(-4, 4);
  for (int round = 0; round < 60; ++round) {
    const std::size_t world = 1 + random() % 9, each = 1 + random() % 12, samples = world * each + random() % 900;
    Sampler even(samples, each, world, 3), shared(samples, each, world, 3);
    for (std::size_t step = 0; step < 2 * even.steps_per_epoch(); ++step) {
      std::vector<double> speeds(world);
      for (double& speed : speeds) speed = std::exp2(exponent(random));
      std::vector<std::int64_t> taken_by_all;
      for (const std::size_t share : share_by_speed(world * each, speeds)) {
        const auto part = shared.part(step, taken_by_all.size(), share);
        taken_by_all.insert(taken_by_all.end(), part.begin(), part.end());
      }
      std::vector<std::int64_t> expected;
      for (std::size_t rank = 0; rank < world; ++rank)
        for (const auto sample : taken(even, step, rank)) expected.push_back(sample);
      ASSERT_EQ(taken_by_all, expected) << world << " workers, step " << step;
    }
  }
}

TEST(Sampler, AStepIsTheSameWhateverWasAskedBefore) {
  Sampler in_order(500, 5, 2, 9);
  std::vector<std::vector<std::int64_t>> all;
  for (std::size_t step = 0; step < 120; ++step) all.push_back(taken(in_order, step, 1));
  Sampler backwards(500, 5, 2, 9);
  for (std::size_t step = 120; step-- > 0;) ASSERT_EQ(taken(backwards, step, 1), all[step]) << "step " << step;
}

TEST(Sampler, EpochsAndSeedsDiffer) {
  Sampler one(500, 10, 1, 1), two(500, 10, 1, 2), high(500, 10, 1, (std::uint64_t{1} << 32) + 1);
  EXPECT_NE(taken(one, 0, 0), taken(one, one.steps_per_epoch(), 0));
  EXPECT_NE(taken(one, 0, 0), taken(two, 0, 0));
  EXPECT_NE(taken(one, 0, 0), taken(high, 0, 0));
}

TEST(Sampler, TheOrderIsTheSameOnEveryMachine) {
  Sampler sampler(10, 10, 1, 0);
  const std::vector<std::int64_t> order = taken(sampler, 0, 0);
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
