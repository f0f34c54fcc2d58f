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

// What a busy machine makes of windows: each speed off by up to `noise`, but in one window of any three, where it is
// whatever it likes.
class NoisyWindows {
 public:
  NoisyWindows(unsigned seed, double noise) : random_(seed), noise_(noise) {}

  std::vector<double> next(std::span<const double> speeds) {
    const bool is_wrong = since_wrong_ >= 2 && at_random(0, 1) < 0.4;
    since_wrong_ = is_wrong ? 0 : since_wrong_ + 1;
    const double all = at_random(0.3, 3);  // what has changed for everybody
    std::vector<double> measured;
    for (const double speed : speeds)
      measured.push_back(all * speed * (is_wrong ? at_random(0.1, 10) : at_random(1 - noise_, 1 + noise_)));
    return measured;
  }
  double at_random(double from, double to) { return std::uniform_real_distribution(from, to)(random_); }

 private:
  std::mt19937 random_;
  const double noise_;
  int since_wrong_ = 1;  // so that the first window is none
};

constexpr double tolerated_noise = 0.045;

std::vector<double> some_speeds(NoisyWindows& windows, std::size_t workers) {
  std::vector<double> speeds;
  for (std::size_t worker = 0; worker < workers; ++worker) speeds.push_back(windows.at_random(1, 8));
  return speeds;
}

// Of a worker whose speed is to be another one against the mean of all, by so many times: its own.
double changed_by(std::span<const double> speeds, std::size_t worker, double factor) {
  const double others = std::accumulate(speeds.begin(), speeds.end(), 0.0) - speeds[worker];
  const double share = factor * speeds[worker] / (others + speeds[worker]);
  return share < 1 ? share * others / (1 - share) : 0;
}

TEST(Drift, NoiseChangesNothing) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    NoisyWindows windows(seed, tolerated_noise);
    const auto speeds = some_speeds(windows, 2 + seed % 7);
    SpeedDrift drift;
    ASSERT_TRUE(drift.add(windows.next(speeds)));
    for (int window = 0; window < 200; ++window) ASSERT_FALSE(drift.add(windows.next(speeds))) << seed << ' ' << window;
  }
}

TEST(Drift, AWorkerThatHasChangedIsFollowedWithinThreeWindows) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    // By exact windows a fifth, and whatever noise hides at most. A worker's own change also changes the others' place.
    const bool is_exact = seed % 2 == 0;
    NoisyWindows windows(seed, is_exact ? 0 : tolerated_noise);
    auto speeds = some_speeds(windows, 2 + seed % 7);
    SpeedDrift drift;
    drift.add(windows.next(speeds));
    for (unsigned window = 0; window < seed % 5; ++window) drift.add(windows.next(speeds));
    const double changed = changed_by(speeds, 0, seed % 4 < 2 ? (is_exact ? 1.201 : 1.45) : (is_exact ? 0.799 : 0.55));
    if (changed <= 0) continue;
    speeds[0] = changed;
    bool is_followed = false;
    for (int window = 0; window < 3 && !is_followed; ++window) is_followed = drift.add(windows.next(speeds));
    ASSERT_TRUE(is_followed) << seed;
    // A window that was wrong may have had a part in it, and is forgotten by then.
    for (int window = 0; window < 6; ++window) drift.add(windows.next(speeds));
    const auto held = drift.speeds();
    EXPECT_NEAR(held[0] / held[1] / (speeds[0] / speeds[1]), 1, 0.5) << seed;
  }
}

TEST(Drift, WhatAllHaveInCommonAndASmallChangeAreNone) {
  SpeedDrift drift;
  EXPECT_TRUE(drift.speeds().empty());
  drift.add(std::vector<double>{100, 100, 50});
  for (int window = 0; window < 5; ++window) {
    EXPECT_FALSE(drift.add(std::vector<double>{50, 50, 25}));
    EXPECT_FALSE(drift.add(std::vector<double>{100, 105, 45}));
  }
  EXPECT_THAT(drift.speeds(), testing::Pointwise(testing::DoubleNear(1e-9), {100, 100, 50}));
}

}  // namespace
}  // namespace ranvier
