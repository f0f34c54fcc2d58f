// Which policy is chosen for which cluster, and what no cluster may change.
#include "ranvier/choose_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "ranvier/error.h"
#include "ranvier/sync.h"

namespace ranvier {
namespace {

using testing::HasSubstr;

// Two nodes of two equal workers, 128 samples in 32 ms, links that cost next to nothing.
PolicySituation calm() {
  return {.speeds = {1000, 1000, 1000, 1000},
          .nodes = {0, 0, 1, 1},
          .samples = 128,
          .inside_seconds = 0.0005,
          .between_seconds = 0.001,
          .push_seconds = 0.001,
          .served_seconds = 0.00025};
}

PolicySituation any(std::mt19937& random) {
  std::uniform_real_distribution<double> share(0, 1);
  const auto between = [&](double least, double most) { return least * std::pow(most / least, share(random)); };
  PolicySituation now;
  const std::size_t nodes = 1 + random() % 4;
  for (std::size_t node = 0; node < nodes; ++node)
    for (std::size_t i = 0; i < 1 + random() % 3; ++i) {
      now.nodes.push_back(static_cast<int>(node));
      now.speeds.push_back(between(10, 10'000));
    }
  now.samples = between(8, 4096);
  now.late_share = share(random) < 0.5 ? 0 : share(random) / 4;
  now.late_factor = between(1, 10);
  now.inside_seconds = between(1e-5, 1e-2);
  now.between_seconds = now.inside_seconds * between(1, 100);
  now.push_seconds = between(1e-5, 0.1);
  now.served_seconds = now.push_seconds * between(0.01, 1);
  return now;
}

bool same(const PolicyChoice& a, const PolicyChoice& b) {
  return a.sync == b.sync && a.split_by_speed == b.split_by_speed;
}

TEST(ChoosePolicy, EqualWorkersOnFastLinksAreSynchronousWithEvenShares) {
  const auto choice = choose_policy(calm());
  EXPECT_EQ(choice.sync, "bsp");
  EXPECT_FALSE(choice.split_by_speed);
  EXPECT_THAT(choice.reason, HasSubstr("node:16"));
}

// Who reads that another way takes less time is told why it is not taken.
TEST(ChoosePolicy, WhatIsFasterAndNotTakenIsGivenAReason) {
  std::mt19937 random(3);
  int given = 0;
  for (int i = 0; i < 2000; ++i) {
    auto now = any(random);
    now.steps_left = i % 2 == 0 ? 1 : 1e9;
    now.change_seconds = i % 2 == 0 ? 1e6 : 0;
    const PolicyChoice current{.sync = "bsp"};
    const auto all = forecast_policies(now);
    const auto choice = choose_policy(now, current);
    const auto taken = std::ranges::find_if(all, [&](const auto& each) {
      return each.sync == choice.sync && each.split_by_speed == choice.split_by_speed;
    });
    ASSERT_NE(taken, all.end());
    const bool is_least = std::ranges::all_of(all, [&](const auto& each) { return taken->cost() <= each.cost(); });
    const bool is_measured_next = worth_measuring(now, current).has_value();
    const bool says_why = choice.reason.find("; ") < choice.reason.find("; speeds differ");
    EXPECT_EQ(says_why, !is_least && !is_measured_next) << choice.reason;
    given += says_why ? 1 : 0;
  }
  EXPECT_GT(given, 100);
}

TEST(ChoosePolicy, UnequalSteadyWorkersShareByTheirSpeed) {
  auto now = calm();
  now.speeds = {1000, 1000, 500, 250};
  const auto choice = choose_policy(now);
  EXPECT_EQ(choice.sync, "bsp");
  EXPECT_TRUE(choice.split_by_speed);
}

TEST(ChoosePolicy, ASlowLinkBetweenNodesIsCrossedEverySixteenthStep) {
  auto now = calm();
  now.between_seconds = now.push_seconds = 0.08;
  now.served_seconds = 0.02;
  EXPECT_EQ(choose_policy(now).sync, "node:16");
  now.speeds = {1000, 1000, 500, 500};
  EXPECT_TRUE(choose_policy(now).split_by_speed);
}

// Whether shares follow speeds turns where these differ 1.2 times; the policy does not turn with it.
TEST(ChoosePolicy, OtherSharesAreNoOtherPolicy) {
  auto now = calm();
  now.between_seconds = now.inside_seconds;
  for (const double slowest : {990.0, 800.0}) {
    now.speeds = {1000, 1000, 1000, slowest};
    ASSERT_EQ(choose_policy(now).sync, "bsp");
    const bool is_unequal = slowest < 900;
    const auto kept = choose_policy(now, {.sync = "node:16", .split_by_speed = !is_unequal});
    EXPECT_EQ(kept.sync, "node:16");
    EXPECT_EQ(kept.split_by_speed, is_unequal);
  }
}

TEST(ChoosePolicy, WhereStepsAreOftenLateNobodyWaitsForAll) {
  auto now = calm();
  now.speeds = {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000};
  now.nodes = {0, 0, 0, 0, 0, 0, 0, 0};
  now.samples = 256;
  now.late_share = 0.1;
  now.late_factor = 5;
  EXPECT_EQ(choose_policy(now).sync, "async");
  now.takes_servers = false;
  EXPECT_EQ(choose_policy(now).sync, "bsp");
}

// Of four equal workers of whose steps one in ten takes four times as long, three steps know hardly more than that some
// are late: by the share that they show alone, one run in nine would go on asynchronously.
TEST(ChoosePolicy, FewStepsAreNoReasonToAverageLessExactly) {
  const auto chosen = [](double late_of) {
    std::mt19937 random(7);
    std::binomial_distribution<int> late(12, 0.1);
    int servers = 0;
    for (int run = 0; run < 2000; ++run) {
      auto now = calm();
      now.inside_seconds = 0.002;
      now.between_seconds = 0.007;
      now.push_seconds = 0.006;
      now.served_seconds = 0.002;
      now.late_share = late(random) / 12.0;
      now.late_factor = 4;
      now.late_of = late_of;
      const auto choice = choose_policy(now);
      servers += choice.sync == "async" ? 1 : 0;
    }
    return servers / 2000.0;
  };
  EXPECT_LT(chosen(12), 0.05);
  EXPECT_GT(chosen(std::numeric_limits<double>::infinity()), 0.08);
}

TEST(ChoosePolicy, TheMoreStepsAreSeenTheMoreTheirLatenessCounts) {
  std::mt19937 random(8);
  int less = 0;
  for (int i = 0; i < 500; ++i) {
    auto now = any(random);
    const auto certain = forecast_policies(now);
    std::vector<PolicyForecast> before;
    for (const double late_of : {1.0, 12.0, 100.0, 1e12}) {
      now.late_of = late_of;
      const auto after = forecast_policies(now);
      for (std::size_t k = 0; k < before.size(); ++k) ASSERT_GE(after[k].seconds, before[k].seconds * (1 - 1e-12));
      before = after;
      if (after.front().seconds < 0.98 * certain.front().seconds) ++less;
    }
    for (std::size_t k = 0; k < before.size(); ++k) ASSERT_NEAR(before[k].seconds / certain[k].seconds, 1, 1e-4);
  }
  EXPECT_GT(less, 300);
}

TEST(ChoosePolicy, GroupsPushWhereSingleWorkersWouldCrowdTheServers) {
  PolicySituation now{.speeds = {1000, 1000, 1000, 500, 500, 500, 200, 200, 200},
                      .late_share = 0.05,
                      .late_factor = 4,
                      .nodes = {0, 0, 0, 0, 0, 0, 0, 0, 0},
                      .samples = 288,
                      .inside_seconds = 0.001,
                      .between_seconds = 0.02,
                      .push_seconds = 0.012,
                      .served_seconds = 0.012};
  EXPECT_EQ(choose_policy(now).sync, "group");
  now.push_seconds = now.served_seconds = 0.001;
  EXPECT_NE(choose_policy(now).sync, "bsp");
}

TEST(ChoosePolicy, NoCandidateOfAnyClusterCostsLessThanTheOneTaken) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto now = any(random);
    const auto all = forecast_policies(now);
    const auto taken = choose_policy(now);
    const double unhindered = now.samples / std::accumulate(now.speeds.begin(), now.speeds.end(), 0.0);
    const auto mine = std::ranges::find_if(
        all, [&](const auto& each) { return each.sync == taken.sync && each.split_by_speed == taken.split_by_speed; });
    ASSERT_NE(mine, all.end());
    for (const auto& each : all) {
      ASSERT_LE(mine->cost(), each.cost());
      ASSERT_GE(each.seconds, unhindered * (1 - 1e-9)) << each.sync << " is faster than all workers together";
      make_sync_policy(each.sync, {.steps_per_epoch = 1, .steps = 1});
    }
  }
}

TEST(ChoosePolicy, NeitherTheUnitOfTimeNorTheOrderOfRanksMatters) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    const auto now = any(random);
    const auto taken = choose_policy(now);
    auto slower = now;
    for (double& speed : slower.speeds) speed /= 8;
    for (double* seconds :
         {&slower.inside_seconds, &slower.between_seconds, &slower.push_seconds, &slower.served_seconds})
      *seconds *= 8;
    ASSERT_TRUE(same(choose_policy(slower), taken));
    auto reversed = now;
    std::ranges::reverse(reversed.speeds);
    std::ranges::reverse(reversed.nodes);
    const auto before = forecast_policies(now);
    const auto after = forecast_policies(reversed);
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t each = 0; each < before.size(); ++each)
      ASSERT_NEAR(after[each].seconds / before[each].seconds, 1, 1e-9) << before[each].sync;
  }
}

TEST(ChoosePolicy, SlowerWorkersAndLinksNeverMakeAForecastFaster) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const auto now = any(random);
    const auto before = forecast_policies(now);
    std::vector<PolicySituation> worse(4, now);
    for (double& speed : worse[0].speeds) speed *= 0.9;  // all, so that groups stay
    worse[1].between_seconds *= 1.5;
    worse[2].push_seconds *= 1.5;
    worse[3].late_share = std::min(1.0, now.late_share + 0.1);
    for (const auto& each : worse) {
      const auto after = forecast_policies(each);
      ASSERT_EQ(after.size(), before.size());
      for (std::size_t k = 0; k < before.size(); ++k) ASSERT_GE(after[k].seconds, before[k].seconds * (1 - 1e-9));
    }
  }
}

TEST(ChoosePolicy, WhatIsInUseStaysUntilAnotherOneIsATenthBetter) {
  std::mt19937 random(4);
  int stayed = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto now = any(random);
    const auto best = choose_policy(now);
    for (const auto& each : forecast_policies(now)) {
      const PolicyChoice current{.sync = each.sync, .split_by_speed = each.split_by_speed};
      const auto next = choose_policy(now, current);
      // Choosing again by the same measurements changes nothing.
      ASSERT_TRUE(same(choose_policy(now, next), next));
      if (same(next, current) && !same(current, best)) ++stayed;
      ASSERT_TRUE(same(next, current) || same(next, best));
    }
  }
  EXPECT_GT(stayed, 20);
}

TEST(ChoosePolicy, WhereThereIsDoubtBspStaysUnlessAnotherWayCostsLessByThatShare) {
  std::mt19937 random(6);
  int stayed = 0, changed = 0;
  for (int i = 0; i < 2000; ++i) {
    auto now = any(random);
    const auto sure = choose_policy(now);
    now.doubt = 0.5;
    const auto choice = choose_policy(now);
    const auto all = forecast_policies(now);
    const auto least = std::ranges::min_element(all, {}, &PolicyForecast::cost);
    const bool is_clear = all.front().cost() > least->cost() * 1.5;
    ASSERT_TRUE(same(choice, is_clear ? sure : PolicyChoice{.sync = "bsp"})) << choice.reason;
    ++(is_clear ? changed : stayed);
  }
  EXPECT_GT(stayed, 100);
  EXPECT_GT(changed, 100);
}

TEST(ChoosePolicy, WhatHidesBehindBackwardCostsBspNothing) {
  auto now = calm();
  now.between_seconds = now.hidden_seconds = 0.03;
  EXPECT_EQ(choose_policy(now).sync, "bsp");
  EXPECT_NEAR(forecast_policies(now).front().seconds, 0.032, 1e-9);
  now.hidden_seconds = 0.01;
  EXPECT_NEAR(forecast_policies(now).front().seconds, 0.052, 1e-9);
  EXPECT_EQ(choose_policy(now).sync, "node:16");
}

// What is not measured is never chosen, and where measuring it is said to be in vain, it is.
TEST(ChoosePolicy, OnlyWhatMayChangeTheChoiceIsWorthMeasuring) {
  std::mt19937 random(5);
  int in_vain = 0, worth = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto now = any(random);
    auto known = now;
    known.measured = {.inside = random() % 2 == 0, .push = random() % 2 == 0, .served = random() % 2 == 0};
    if (!known.measured.inside) known.inside_seconds = 0;
    if (!known.measured.push) known.push_seconds = 0;
    if (!known.measured.served) known.served_seconds = 0;
    const PolicyChoice current{.sync = "bsp", .split_by_speed = random() % 2 == 0};
    const auto taken = choose_policy(known, current);
    const auto all = forecast_policies(known);
    const auto mine = std::ranges::find_if(
        all, [&](const auto& each) { return each.sync == taken.sync && each.split_by_speed == taken.split_by_speed; });
    ASSERT_NE(mine, all.end());
    ASSERT_FALSE(mine->at_least) << mine->sync;
    const auto contender = worth_measuring(known, current);
    if (!contender) {
      ASSERT_TRUE(same(choose_policy(now, current), taken));
      in_vain += known.measured == PolicySituation::Measured{} ? 0 : 1;
    } else {
      ASSERT_TRUE(contender->at_least);
      ASSERT_LT(contender->cost(), mine->cost());
      ++worth;
    }
  }
  EXPECT_GT(in_vain, 200);
  EXPECT_GT(worth, 200);
}

TEST(ChoosePolicy, TheStepsThatAreLeftHaveToWinMoreThanChangingTakes) {
  auto now = calm();
  now.between_seconds = now.push_seconds = 0.08;
  now.served_seconds = 0.02;
  now.change_seconds = 0.16;
  now.steps_left = 10;
  EXPECT_EQ(choose_policy(now).sync, "node:16");
  for (const PolicyChoice& current : {PolicyChoice{}, PolicyChoice{.sync = "bsp"}}) {
    now.steps_left = 10;
    EXPECT_EQ(choose_policy(now, current).sync, "node:16");
    now.steps_left = 2;
    EXPECT_EQ(choose_policy(now, current).sync, "bsp");
    now.measured.inside = false;
    EXPECT_FALSE(worth_measuring(now, current));
    now.measured.inside = true;
  }
}

TEST(ChoosePolicy, SpeedsHaveToBeMeasured) {
  EXPECT_THROW(choose_policy({.speeds = {1, 0}, .nodes = {0, 0}}), Error);
  EXPECT_THROW(choose_policy({.speeds = {1, 1}, .nodes = {0}}), Error);
}

}  // namespace
}  // namespace ranvier
