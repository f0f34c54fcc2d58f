#include "integrations/trainer/learning_rate.h"

#include <gtest/gtest.h>

namespace ranvier::trainer {
namespace {

TEST(LearningRate, FallsFromItsPeakToZeroAlongACosine) {
  const LearningRate rate{.peak = 0.4, .steps = 100};
  EXPECT_DOUBLE_EQ(rate.at(0), 0.4);
  EXPECT_NEAR(rate.at(50), 0.2, 1e-12);
  EXPECT_NEAR(rate.at(100), 0, 1e-12);
}

TEST(LearningRate, RisesInEqualStepsAndNeverJumps) {
  const LearningRate rate{.peak = 0.8, .first = 0.1, .warm_up = 10, .steps = 100};
  EXPECT_GT(rate.at(0), 0.1);
  for (int step = 1; step < 10; ++step) EXPECT_NEAR(rate.at(step) - rate.at(step - 1), 0.7 / 11, 1e-12) << step;
  EXPECT_NEAR(rate.at(10), 0.8, 1e-12);
  EXPECT_NEAR(rate.at(10) - rate.at(9), 0.7 / 11, 1e-12);
  for (int step = 11; step <= 100; ++step) EXPECT_LT(rate.at(step), rate.at(step - 1));
  EXPECT_NEAR(rate.at(100), 0, 1e-12);
}

TEST(LearningRate, GrowsInProportionToTheSamplesOfAStep) {
  const auto rate = scaled_linearly(0.1, 1024, 128);
  EXPECT_DOUBLE_EQ(rate.peak, 0.8);
  EXPECT_DOUBLE_EQ(rate.first, 0.1);
}

TEST(LearningRate, StaysFiniteWhereWarmingUpIsAllThereIs) {
  const LearningRate rate{.peak = 1, .warm_up = 50, .steps = 20};
  for (int step = 0; step <= 60; ++step) {
    EXPECT_GE(rate.at(step), 0);
    EXPECT_LE(rate.at(step), 1);
  }
}

}  // namespace
}  // namespace ranvier::trainer
