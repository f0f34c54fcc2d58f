// When a plan is called wrong, and what comes then. Times are those that the test says.
#include "integrations/trainer/followed_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/cluster.h"

namespace ranvier::trainer {
namespace {

using support::run_ranks;
using testing::ElementsAre;

constexpr Rank world = 3;

// What a rank waits for in its step of that number, in seconds, beside 10 ms of computing; ranks differ by a little.
using Waiting = std::function<double(std::size_t step)>;

struct Judged {
  std::vector<std::size_t> changed;  // behind which steps
  std::vector<WrongPlan> asked;      // of rank 0, why
};

// Steps by a plan that expects to wait for 2 ms. All ranks change by the same steps.
Judged follow(std::size_t steps, const Waiting& waiting, const Replan& replan, const std::string& sync = "bsp",
              bool unequal = false) {
  TrainSettings settings;
  settings.sync = sync;
  settings.planned_unequal = unequal;
  settings.planned = {.step = 0.012, .waiting = 0.002};
  Judged judged;
  std::vector<std::vector<std::size_t>> changed(world);
  run_ranks(world,
            [&](Communicator& comm) {
              FollowedPlan plan(settings, world);
              const Replan ask = [&](const PlanChange& current, const WrongPlan& wrong) {
                EXPECT_EQ(comm.rank(), 0);
                judged.asked.push_back(wrong);
                return replan(current, wrong);
              };
              for (std::size_t step = 1; step <= steps; ++step) {
                const std::chrono::duration<double> waits(waiting(step) * (1 + 0.01 * comm.rank()));
                const auto all =
                    std::chrono::duration_cast<std::chrono::nanoseconds>(waits + std::chrono::milliseconds(10));
                plan.add_step(all, std::chrono::duration_cast<std::chrono::nanoseconds>(waits));
                if (!plan.is_due()) continue;
                if (const auto change = plan.judge(step, comm, replan ? ask : replan, 4000, false))
                  changed[static_cast<std::size_t>(comm.rank())].push_back(change->step);
              }
            },
            {.way = "shm"});
  for (const auto& each : changed) EXPECT_EQ(each, changed.front());
  judged.changed = changed.front();
  return judged;
}

// What was measured is expected from then on.
PlanChange as_measured(const PlanChange& current, const WrongPlan& wrong) {
  PlanChange change = current;
  change.expected = wrong.measured;
  change.reason = "measured";
  return change;
}

TEST(FollowedPlan, HoldsWhileStepsAreAsPlanned) {
  const auto judged = follow(
      200, [](std::size_t) { return 0.003; }, as_measured);
  EXPECT_TRUE(judged.changed.empty());
  EXPECT_TRUE(judged.asked.empty());
}

// However long it has held before; and once more where the link recovers.
TEST(FollowedPlan, IsMadeAgainWhereALinkBecomesSlowerOrFasterOnTheWay) {
  const auto judged = follow(
      400, [](std::size_t step) { return step > 103 && step <= 250 ? 0.03 : 0.002; }, as_measured);
  ASSERT_THAT(judged.changed, ElementsAre(123, 266));
  EXPECT_NEAR(judged.asked[0].measured.step, 0.0403, 1e-4);
  EXPECT_NEAR(judged.asked[0].measured.waiting, 0.0303, 1e-4);
  EXPECT_EQ(judged.asked[0].gradient_bytes, 4000);
  EXPECT_NEAR(judged.asked[1].planned.step, 0.0403, 1e-4);
  EXPECT_NEAR(judged.asked[1].measured.step, 0.012, 1e-4);
}

// Of a policy that averages now and then whole periods count: their mean, while the median step never waits.
TEST(FollowedPlan, OfAPolicyIsJudgedByTheMeanOfItsPeriods) {
  const auto every_eighth = [](double seconds) {
    return [=](std::size_t step) { return step % 8 == 0 ? seconds : 0; };
  };
  const auto as_planned = follow(200, every_eighth(0.016), as_measured, "local:8");
  EXPECT_TRUE(as_planned.asked.empty());
  const auto slower = follow(100, every_eighth(0.16), as_measured, "local:8");
  ASSERT_THAT(slower.changed, ElementsAre(27));
  EXPECT_NEAR(slower.asked[0].measured.step, 0.0302, 1e-4);
  EXPECT_NEAR(slower.asked[0].measured.waiting, 0.0202, 1e-4);
  EXPECT_TRUE(follow(100, every_eighth(0.16), as_measured, "async").asked.empty());
}

// One step in ten is late, and what a step takes is told by a hundred of them.
TEST(FollowedPlan, OfUnequalWorkersIsJudgedByTheMeanOfManySteps) {
  const auto late = [](double seconds) { return [=](std::size_t step) { return step % 10 == 0 ? seconds : 0; }; };
  EXPECT_TRUE(follow(400, late(0.02), as_measured, "bsp", true).asked.empty());
  const auto slower = follow(400, late(0.2), as_measured, "bsp", true);
  ASSERT_THAT(slower.changed, ElementsAre(103));
  EXPECT_NEAR(slower.asked[0].measured.step, 0.0302, 1e-4);
}

struct Left {
  std::vector<std::size_t> behind;  // steps
  std::string reason;
  StepSeconds followed;  // while it was
};

// Stretches of 16 steps at the workers' own pace, of so many seconds each.
Left follow_at_own_pace(const std::string& sync, const std::vector<double>& stretches, std::uint16_t serve = 0) {
  TrainSettings settings;
  settings.sync = sync;
  settings.serve = serve;
  settings.planned = {.step = 0.012};
  std::vector<Left> left(world);
  run_ranks(world,
            [&](Communicator& comm) {
              FollowedPlan plan(settings, world);
              Left& own = left[static_cast<std::size_t>(comm.rank())];
              for (std::size_t i = 0; i < stretches.size(); ++i) {
                const std::chrono::duration<double> all(stretches[i] * (1 + 0.01 * comm.rank()));
                plan.add_steps(16, std::chrono::duration_cast<std::chrono::nanoseconds>(all), {});
                EXPECT_FALSE(plan.is_due());
                if (const auto changed = plan.judge_pace(16 * (i + 1), comm)) {
                  own.behind.push_back(changed->step);
                  own.reason = changed->change.reason;
                  plan.leave();
                }
              }
              own.followed = plan.times().mean(comm);
            },
            {.way = "shm"});
  for (const Left& each : left) EXPECT_EQ(each.behind, left.front().behind);
  return left.front();
}

// Two stretches are enough steps to judge by. What comes after it is none of the plan's.
TEST(FollowedPlan, OfWorkersAtTheirOwnPaceIsLeftWhereTheyTakeOtherTimes) {
  for (const char* sync : {"async", "ssp:2", "group"}) {
    EXPECT_TRUE(follow_at_own_pace(sync, {0.16, 0.2, 0.21, 0.22, 0.2}).behind.empty()) << sync;
    const Left slower = follow_at_own_pace(sync, {0.2, 0.2, 0.64, 0.64, 7, 7});
    EXPECT_THAT(slower.behind, ElementsAre(64)) << sync;
    EXPECT_EQ(slower.reason,
              "the samples of a step take 40.40 ms and not 12.00: the policy is chosen by what training shows from now "
              "on, as by --sync auto");
    EXPECT_NEAR(slower.followed.step, 1.01 * (0.2 + 0.2 + 0.64 + 0.64) / 64, 0.001) << sync;
    EXPECT_THAT(follow_at_own_pace(sync, {0.01, 0.01, 0.01}).behind, ElementsAre(32)) << "much sooner is wrong too";
  }
  EXPECT_TRUE(follow_at_own_pace("async", {0.64, 0.64, 0.64}, 7000).behind.empty()) << "guests need the servers";
  EXPECT_TRUE(follow_at_own_pace("async:servers=1", {0.64, 0.64, 0.64}).behind.empty());
}

TEST(FollowedPlan, ThatStaysWrongIsMadeAgainEverMoreSeldom) {
  const auto hopeful = [](const PlanChange& current, const WrongPlan&) {
    PlanChange change = current;
    change.expected = {.step = 0.001};
    change.reason = "hope";
    return change;
  };
  const auto judged = follow(
      500, [](std::size_t) { return 0.03; }, hopeful);
  EXPECT_THAT(judged.changed, ElementsAre(23, 46, 69, 112, 195, 358));
}

// One that was too careful stays where nobody can make it again, and is not asked for again; one that was too hopeful
// loses its table, and is judged no more.
TEST(FollowedPlan, ThatCannotBeMadeAgainIsDroppedOnlyWhereStepsTakeLonger) {
  const auto fails = [](const PlanChange&, const WrongPlan&) -> PlanChange { throw std::runtime_error("no file"); };
  const auto careful = follow(
      100, [](std::size_t) { return 0; }, fails);
  EXPECT_TRUE(careful.changed.empty());
  EXPECT_EQ(careful.asked.size(), 0u) << "2 of 12 ms are tolerable";
  const auto faster = follow(
      200, [](std::size_t step) { return step > 60 ? 0.001 : 0.02; },
      [&](const PlanChange& current, const WrongPlan& wrong) -> PlanChange {
        if (wrong.measured.step > wrong.planned.step) return as_measured(current, wrong);
        throw std::runtime_error("no file");
      });
  EXPECT_THAT(faster.changed, ElementsAre(23));
  EXPECT_EQ(faster.asked.size(), 2u);
  const auto hopeful = follow(
      200, [](std::size_t) { return 0.03; }, fails);
  EXPECT_THAT(hopeful.changed, ElementsAre(23));
  EXPECT_EQ(hopeful.asked.size(), 1u);
}

}  // namespace
}  // namespace ranvier::trainer
