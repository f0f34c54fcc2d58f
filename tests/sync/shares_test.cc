#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "ranvier/error.h"
#include "ranvier/sync.h"

namespace ranvier {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::Ge;

TEST(Shares, AreInProportionToSpeedAndTheRestIsTheLargests) {
  EXPECT_THAT(share_by_speed(128, std::vector<double>{1, 1, 0.5, 0.25}), ElementsAre(46, 47, 23, 12));
  EXPECT_THAT(share_by_speed(128, std::vector<double>{3, 3, 3, 3}), ElementsAre(32, 32, 32, 32));
}

TEST(Shares, OfAnySpeedsNoSampleIsLostAndNobodyGoesWithout) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> exponent(-4, 4);
  for (int round = 0; round < 2000; ++round) {
    const std::size_t world = 1 + random() % 17;
    const std::size_t total = world + random() % 300;
    std::vector<double> speeds(world);
    for (auto& speed : speeds) speed = std::exp2(exponent(random));
    const auto shares = share_by_speed(total, speeds);
    ASSERT_EQ(std::accumulate(shares.begin(), shares.end(), std::size_t{0}), total);
    ASSERT_THAT(shares, Each(Ge(std::min<std::size_t>(4, total / world)))) << "world " << world << " total " << total;
    // Nearly in proportion, where that is not too few: only the largest takes what rounding left.
    const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
    const auto largest = static_cast<std::size_t>(std::ranges::max_element(speeds) - speeds.begin());
    for (std::size_t i = 0; i < world; ++i)
      if (const double fair = static_cast<double>(total) * speeds[i] / sum; i != largest && fair > 8 && world < 4) {
        ASSERT_NEAR(static_cast<double>(shares[i]), fair, 4.5);
      }
  }
}

TEST(Shares, OfFewerSamplesAreAsLargeParts) {
  const std::vector<std::size_t> shares{46, 47, 23, 12};
  EXPECT_THAT(share_alike(128, shares), ElementsAreArray(shares));
  EXPECT_THAT(share_alike(64, shares), ElementsAre(23, 24, 11, 6));
  EXPECT_THAT(share_alike(1, shares), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(share_alike(0, shares), Each(0U));
  EXPECT_THAT(share_alike(5, std::vector<std::size_t>{8, 8, 0}), ElementsAre(3, 2, 0));
}

TEST(Groups, ArePartedWhereSpeedsAre) {
  const std::vector<double> classes{0.5, 1, 0.2, 1.1, 0.21, 0.5};
  EXPECT_THAT(group_by_speed(classes, {}), ElementsAre(1, 0, 2, 0, 2, 1));
  EXPECT_THAT(group_by_speed(std::vector<double>(4, 1.0), {}), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(group_by_speed(std::vector<double>(5, 1.0), {.largest = 2}), ElementsAre(0, 0, 1, 1, 2));
}

TEST(Groups, NobodyIsAloneButWhoIsTheOnlyOne) {
  EXPECT_THAT(group_by_speed(std::vector<double>{4, 4, 1}, {}), ElementsAre(0, 0, 0));
  EXPECT_THAT(group_by_speed(std::vector<double>{9, 9, 3, 1, 1}, {}), Each(Ge(0)));
  EXPECT_THAT(group_by_speed(std::vector<double>{10, 9.9, 4, 1, 1}, {}), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(group_by_speed(std::vector<double>{2}, {}), ElementsAre(0));
  EXPECT_THROW(group_by_speed(std::vector<double>{2, 0}, {}), Error);
}

TEST(Groups, TheFastestComeLastWhereLayersAreDealtOut) {
  EXPECT_THAT(slowest_first(std::array{2.0, 1.0, 8.0, 1.0}), ElementsAre(1, 3, 0, 2));
  EXPECT_TRUE(slowest_first({}).empty());
}

TEST(Shares, ImpossibleSpeedsAreRefused) {
  EXPECT_THROW(share_by_speed(10, std::vector<double>{1, 0}), Error);
  EXPECT_THROW(share_by_speed(10, std::vector<double>{1, std::nan("")}), Error);
  EXPECT_THROW(share_by_speed(1, std::vector<double>{1, 1}), Error);
}

}  // namespace
}  // namespace ranvier
