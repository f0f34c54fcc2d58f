// When a plan is judged, and when it is wrong.
#include "ranvier/plan_judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "ranvier/error.h"

namespace ranvier {
namespace {

using testing::ElementsAre;

TEST(PlanJudge, KnowsThePeriodsOfPolicies) {
  for (const auto& [sync, period] :
       std::initializer_list<std::pair<const char*, std::size_t>>{{"bsp", 1},
                                                                  {"local:16", 16},
                                                                  {"diloco:30", 30},
                                                                  {"node:16", 16},
                                                                  {"slowmo:12", 12},
                                                                  {"post-local:16", 0},
                                                                  {"local", 0},
                                                                  {"gossip", 2},
                                                                  {"diloco:30,fragments=3,delay=5", 30},
                                                                  {"node:16,delay=15", 16},
                                                                  {"local:5000", 0},
                                                                  {"async", 0},
                                                                  {"ad-psgd", 0}})
    EXPECT_EQ(period_of(sync, 4), period) << sync;
}

std::vector<std::size_t> due(const PlanJudge& judge, std::size_t steps) {
  std::vector<std::size_t> found;
  for (std::size_t step = 0; step <= steps; ++step)
    if (judge.is_due(step)) found.push_back(step);
  return found;
}

TEST(PlanJudge, LooksAtWholePeriodsBehindStepsThatWarmUp) {
  EXPECT_THAT(due(PlanJudge("bsp", 4, {.step = 1}), 63), ElementsAre(23, 43, 63));
  EXPECT_THAT(due(PlanJudge("local:16", 4, {.step = 1}), 67), ElementsAre(35, 67));
  EXPECT_THAT(due(PlanJudge("bsp", 4, {.step = 1}, true), 110), ElementsAre(103));
  EXPECT_TRUE(PlanJudge("bsp", 4, {.step = 1}).by_median());
  EXPECT_FALSE(PlanJudge("bsp", 4, {.step = 1}, true).by_median());
  EXPECT_FALSE(PlanJudge("local:16", 4, {.step = 1}).by_median());
}

TEST(PlanJudge, JudgesNothingOfWhichNothingIsExpected) {
  PlanJudge judge("bsp", 4, {});
  EXPECT_FALSE(judge.judges());
  EXPECT_THAT(due(judge, 100), ElementsAre());
  judge.expect({.step = 1});
  EXPECT_TRUE(judge.judges());
  EXPECT_FALSE(PlanJudge("post-local:16", 4, {.step = 1}).judges());
  EXPECT_THROW(PlanJudge("bps", 4, {.step = 1}), Error);
}

TEST(PlanJudge, ToleratesAQuarterEitherWay) {
  const PlanJudge judge("bsp", 4, {.step = 0.1});
  for (const auto& [seconds, wrong] : std::initializer_list<std::pair<double, bool>>{
           {0.1, false}, {0.124, false}, {0.126, true}, {0.081, false}, {0.079, true}, {0, true}})
    EXPECT_EQ(judge.is_wrong({.step = seconds}), wrong) << seconds;
}

TEST(PlanJudge, TakesTwiceAsManyStepsWithEachChangeButTheFirst) {
  PlanJudge judge("bsp", 4, {.step = 1});
  std::vector<std::size_t> windows;
  for (int i = 0; i < 6; ++i) {
    windows.push_back(judge.window());
    judge.change({.step = 2});
  }
  EXPECT_THAT(windows, ElementsAre(20, 20, 20, 40, 80, 160));
  EXPECT_EQ(judge.changes(), 6U);
  EXPECT_EQ(judge.expected().step, 2);
}

}  // namespace
}  // namespace ranvier
