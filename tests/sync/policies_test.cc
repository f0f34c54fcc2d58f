// Policies told of thousands of steps, without anything that trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "ranvier/error.h"
#include "ranvier/sync.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr SyncContext context{.steps_per_epoch = 100, .steps = 400, .world = 6};

std::string text(const SyncAction& each) {
  if (each.what == SyncAction::What::push) return fmt::format("push {}", each.hops);
  if (each.what == SyncAction::What::begin_fragment) return fmt::format("begin {}", each.fragment);
  if (each.what == SyncAction::What::finish_fragment)
    return fmt::format("finish {}{}", each.fragment, each.outer.is_plain() ? "" : " outer");
  if (each.what == SyncAction::What::begin_average) return fmt::format("begin {}-{}", each.inside, each.level);
  if (each.what == SyncAction::What::finish_average) return fmt::format("finish {}-{}", each.inside, each.level);
  return fmt::format("{} {}-{}{}", each.what == SyncAction::What::gradients ? "gradients" : "parameters", each.inside,
                     each.level, each.outer.is_plain() ? "" : " outer");
}

// What a policy asks for after each step from 1 (or behind those that were complete when it began) on, and "g" for
// gradients over a level before it.
std::map<std::uint64_t, std::vector<std::string>> run(std::string_view spec, std::uint64_t steps,
                                                      std::uint64_t begin = 0) {
  SyncContext then = context;
  then.begin = begin;
  const auto policy = make_sync_policy(spec, then);
  std::map<std::uint64_t, std::vector<std::string>> asked;
  for (std::uint64_t step = begin + 1; step <= steps; ++step) {
    for (const auto& each : policy->react({.point = SyncPoint::step_begins, .step = step - 1}))
      asked[step].push_back(text(each));
    for (const auto& each : policy->react({.point = SyncPoint::step_ended, .step = step}))
      asked[step].push_back(text(each));
  }
  return asked;
}

std::string problem(std::string_view spec) {
  return support::refusal([&] { make_sync_policy(spec, context); });
}

TEST(Policies, BspAveragesEverybodysGradientsInEveryStep) {
  for (const auto& [step, asked] : run("bsp", 50)) EXPECT_THAT(asked, ElementsAre("gradients 0-1")) << step;
}

TEST(Policies, LocalAveragesParametersWhenItsPeriodEndsAndNothingElse) {
  const auto asked = run("local:7", 70);
  ASSERT_EQ(asked.size(), 10U);
  for (const auto& [step, actions] : asked) {
    EXPECT_EQ(step % 7, 0U);
    EXPECT_THAT(actions, ElementsAre("parameters 0-1"));
  }
}

TEST(Policies, APeriodIsAnEpochWhereNoneIsNamed) {
  EXPECT_EQ(run("local", 250).size(), 2U);
  const auto asked = run("node", 250);
  EXPECT_THAT(asked.at(99), ElementsAre("gradients 0-1"));
  EXPECT_THAT(asked.at(100), ElementsAre("gradients 0-1", "parameters 1-2"));
}

TEST(Policies, PostLocalIsSynchronousUntilItsShareOfTrainingHasPassed) {
  const auto asked = run("post-local:16,after=0.25", 200);
  for (std::uint64_t step = 1; step <= 100; ++step) ASSERT_THAT(asked.at(step), ElementsAre("gradients 0-1"));
  for (std::uint64_t step = 101; step <= 200; ++step) ASSERT_EQ(asked.contains(step), (step - 100) % 16 == 0) << step;
}

TEST(Policies, AnOuterLevelAveragesWhatItsInnerOnesHaveAgreedOn) {
  const auto asked = run("hierarchy:node=1,rack=4,world=12", 24);
  EXPECT_THAT(asked.at(3), ElementsAre("gradients 0-1"));
  EXPECT_THAT(asked.at(4), ElementsAre("gradients 0-1", "parameters 1-2"));
  EXPECT_THAT(asked.at(12), ElementsAre("gradients 0-1", "parameters 1-2", "parameters 2-3"));
}

TEST(Policies, AHierarchyMayLeaveEvenItsNodesAlone) {
  const auto asked = run("hierarchy:node=2,world=6", 6);
  EXPECT_FALSE(asked.contains(1));
  EXPECT_THAT(asked.at(2), ElementsAre("parameters 0-1"));
  EXPECT_THAT(asked.at(6), ElementsAre("parameters 0-1", "parameters 1-2"));
}

TEST(Policies, AnAverageMayBeUnderWayForItsDelay) {
  const auto by_nodes = run("node:8,delay=3", 24);
  for (std::uint64_t step = 1; step <= 24; ++step) {
    const auto& asked = by_nodes.at(step);
    EXPECT_EQ(asked.front(), "gradients 0-1");
    if (step % 8 == 0) {
      EXPECT_THAT(asked, ElementsAre("gradients 0-1", "begin 1-2")) << step;
    } else if (step > 8 && step % 8 == 3) {
      EXPECT_THAT(asked, ElementsAre("gradients 0-1", "finish 1-2")) << step;
    } else {
      EXPECT_EQ(asked.size(), 1U) << step;
    }
  }
  // One is there before the next one leaves, also in a run that begins in the middle.
  const auto longest = run("local:4,delay=3", 14, 2);
  EXPECT_THAT(longest.at(6), ElementsAre("begin 0-1"));
  EXPECT_THAT(longest.at(9), ElementsAre("finish 0-1"));
  EXPECT_THAT(longest.at(10), ElementsAre("begin 0-1"));
  EXPECT_EQ(longest.size(), 5U);
  // Inner levels average at once, and before what they agree on leaves.
  const auto sites = run("hierarchy:node=1,rack=2,world=6,delay=2", 12);
  EXPECT_THAT(sites.at(6), ElementsAre("gradients 0-1", "parameters 1-2", "begin 2-3"));
  EXPECT_THAT(sites.at(8), ElementsAre("gradients 0-1", "finish 2-3", "parameters 1-2"));
}

TEST(Policies, TheEndComesBeforeAnAverageThatIsUnderWay) {
  const auto policy = make_sync_policy("node:8,delay=3", context);
  for (std::uint64_t step = 1; step <= 8; ++step) policy->react({.point = SyncPoint::step_ended, .step = step});
  const auto asked = policy->react({.point = SyncPoint::ended});
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(text(asked[0]), "parameters 1-2");
}

// 18 is no multiple of the periods: the first one is as long as the others.
TEST(Policies, PeriodsBeginWithThePolicy) {
  for (const std::string_view spec : {"local:16", "node:16", "hierarchy:node=1,world=16", "diloco:16", "slowmo:16"}) {
    std::vector<std::uint64_t> ends;
    for (const auto& [step, actions] : run(spec, 60, 18))
      if (actions.back().starts_with("parameters")) ends.push_back(step);
    EXPECT_THAT(ends, ElementsAre(34, 50)) << spec;
  }
  const auto inner = run("hierarchy:node=2,world=6", 27, 21);
  EXPECT_FALSE(inner.contains(22));
  EXPECT_THAT(inner.at(23), ElementsAre("parameters 0-1"));
  EXPECT_THAT(inner.at(27), ElementsAre("parameters 0-1", "parameters 1-2"));
  const auto parts = run("diloco:12,fragments=2", 16, 4);
  EXPECT_FALSE(parts.contains(6));
  EXPECT_THAT(parts.at(10), ElementsAre("begin 0", "finish 0 outer"));
  EXPECT_THAT(parts.at(16), ElementsAre("begin 1", "finish 1 outer"));
  // Its synchronous share is of all training, wherever it begins.
  const auto later = run("post-local:16,after=0.25", 140, 90);
  EXPECT_THAT(later.at(100), ElementsAre("gradients 0-1"));
  EXPECT_FALSE(later.contains(112));
  EXPECT_THAT(later.at(116), ElementsAre("parameters 0-1"));
}

TEST(Policies, SayWhenTheyFirstAverage) {
  for (const std::string spec : {"local:7", "post-local:5,after=0.1", "node:6,delay=4", "slowmo:5",
                                 "diloco:12,fragments=4", "hierarchy:node=2,rack=4,world=12", "gossip"})
    for (const std::uint64_t begin : {0U, 50U}) {
      if (spec == "gossip" && begin > 0) continue;  // which counts no periods
      SyncContext then = context;
      then.begin = begin;
      const auto policy = make_sync_policy(spec, then);
      const std::uint64_t told = policy->first_average();
      const auto averages = [&](const SyncAction& each) {
        return each.what != SyncAction::What::parameters || each.level == policy->levels().size();
      };
      std::uint64_t step = begin + 1;
      while (std::ranges::none_of(policy->react({.point = SyncPoint::step_ended, .step = step}), averages)) ++step;
      EXPECT_EQ(told, step) << spec << " from " << begin;
    }
  EXPECT_EQ(make_sync_policy("local:1000000000", context)->first_average(), 1'000'000'000U);
}

TEST(Policies, OuterStepsAreTakenByTheLastLevelOnly) {
  EXPECT_THAT(run("diloco:5", 5).at(5), ElementsAre("parameters 0-1 outer"));
  EXPECT_THAT(run("slowmo:5", 5).at(5), ElementsAre("parameters 0-1 outer"));
  EXPECT_FALSE(make_sync_policy("local:5", context)->has_outer_step());
}

TEST(Policies, OneWorkerTakesNoOuterStep) {
  for (const std::string_view spec : {"diloco:2", "slowmo:2", "diloco:2,fragments=2"}) {
    const auto policy = make_sync_policy(spec, {.steps_per_epoch = 100, .steps = 400, .world = 1});
    for (std::uint64_t step = 1; step <= 4; ++step)
      for (const auto& each : policy->react({.point = SyncPoint::step_ended, .step = step}))
        EXPECT_TRUE(each.outer.is_plain()) << spec;
  }
}

TEST(Policies, GossipDoublesItsDistanceAndBeginsAnew) {
  const auto asked = run("gossip", 4);
  EXPECT_THAT(asked.at(1), ElementsAre("push 1"));
  EXPECT_THAT(asked.at(2), ElementsAre("push 2"));
  EXPECT_THAT(asked.at(3), ElementsAre("push 4"));
  EXPECT_THAT(asked.at(4), ElementsAre("push 1"));
}

// Push-sum's two facts: nothing is lost on the way, and where the number of ranks is a power of two all have heard of
// all after one round of distances.
TEST(Policies, GossipConservesTheSumAndReachesEverybody) {
  std::mt19937 random(5);
  for (const std::uint64_t world : {1U, 2U, 3U, 4U, 7U, 8U, 16U, 31U}) {
    const auto policy = make_sync_policy("gossip", {.world = world});
    std::vector<double> x(world);
    for (auto& each : x) each = static_cast<double>(random() % 1000);
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(world);
    const auto rounds = static_cast<std::uint64_t>(std::bit_width(world - 1));
    for (std::uint64_t step = 1; step <= 40 * rounds; ++step) {
      for (const auto& each : policy->react({.point = SyncPoint::step_ended, .step = step})) {
        auto next = x;
        for (std::size_t i = 0; i < world; ++i) next[(i + each.hops) % world] = (x[(i + each.hops) % world] + x[i]) / 2;
        x = next;
      }
      ASSERT_NEAR(std::accumulate(x.begin(), x.end(), 0.0), mean * static_cast<double>(world), 1e-6);
      if (step == rounds && std::has_single_bit(world)) {
        for (const double each : x) ASSERT_NEAR(each, mean, 1e-9) << world;
      }
    }
    for (const double each : x) ASSERT_NEAR(each, mean, 1e-3) << world;
  }
}

TEST(Policies, FragmentsLeaveInTurnOnceAPeriodAndAreAppliedTheirDelayLater) {
  for (const auto& [period, fragments, delay] :
       std::vector<std::array<std::uint64_t, 3>>{{12, 3, 2}, {12, 3, 0}, {30, 1, 7}, {30, 30, 0}, {40, 4, 9}}) {
    const std::string spec = fmt::format("diloco:{},fragments={},delay={},merge=0.5", period, fragments, delay);
    const auto asked = run(spec, 5 * period);
    std::optional<std::pair<std::uint64_t, std::uint64_t>> under_way;  // fragment, and when it left
    std::vector<std::uint64_t> left(fragments, 0);
    for (const auto& [step, actions] : asked)
      for (const auto& action : actions) {
        const std::uint64_t fragment = std::stoull(action.substr(action.find(' ') + 1));
        if (action.starts_with("begin")) {
          ASSERT_FALSE(under_way) << spec << ": one at a time";
          // The first time in turn, from then on a period after the last time.
          const std::uint64_t expected =
              left[fragment] == 0 ? (fragment + 1) * period / fragments : left[fragment] + period;
          ASSERT_EQ(step, expected) << spec;
          under_way = {fragment, step};
          left[fragment] = step;
        } else {
          ASSERT_EQ(under_way, std::pair(fragment, step - delay)) << spec;
          under_way.reset();
        }
      }
    for (const std::uint64_t step : left) EXPECT_GT(step, 4 * period) << spec;
  }
}

TEST(Policies, StreamingEndsWithWhatIsUnderWayAndThenThePlainMeanOfAll) {
  const auto policy = make_sync_policy("diloco:8,fragments=2,delay=3", context);
  for (std::uint64_t step = 1; step <= 5; ++step) policy->react({.point = SyncPoint::step_ended, .step = step});
  std::vector<std::string> asked;
  for (const auto& each : policy->react({.point = SyncPoint::ended})) asked.push_back(text(each));
  EXPECT_THAT(asked, ElementsAre("finish 0", "begin 0", "finish 0", "begin 1", "finish 1"));
}

TEST(Policies, TheEndBringsTogetherWhatHasNotAgreed) {
  const auto policy = make_sync_policy("node:8", context);
  for (std::uint64_t step = 1; step <= 8; ++step) policy->react({.point = SyncPoint::step_ended, .step = step});
  EXPECT_TRUE(policy->react({.point = SyncPoint::ended}).empty());
  policy->react({.point = SyncPoint::step_ended, .step = 9});
  const auto asked = policy->react({.point = SyncPoint::ended});
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(text(asked[0]), "parameters 1-2");
}

// Rate and momentum are meant for whole periods.
TEST(Policies, APeriodThatIsCutShortEndsWithoutAnOuterStep) {
  for (const std::string_view spec : {"diloco:5", "slowmo:5"}) {
    const auto policy = make_sync_policy(spec, context);
    for (std::uint64_t step = 1; step <= 7; ++step) policy->react({.point = SyncPoint::step_ended, .step = step});
    const auto asked = policy->react({.point = SyncPoint::ended});
    ASSERT_EQ(asked.size(), 1U) << spec;
    EXPECT_EQ(text(asked[0]), "parameters 0-1") << spec;
  }
}

// The periods of a run in which the spread of replicas is what `spread` says.
std::vector<std::uint64_t> periods(std::string_view spec, const std::function<double(std::uint64_t)>& spread) {
  const auto policy = make_sync_policy(spec, context);
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t step = 1, last = 0; step <= 1000; ++step)
    if (!policy->react({.point = SyncPoint::step_ended, .step = step}).empty()) {
      policy->react({.point = SyncPoint::averaged, .step = step, .spread = spread(step - last)});
      lengths.push_back(step - last);
      last = step;
    }
  return lengths;
}

TEST(Policies, AnAdaptivePeriodGrowsUntilReplicasPartTooFar) {
  const auto alike = periods("local:4,adapt=0.5,most=64", [](auto) { return 0.0; });
  EXPECT_THAT(std::vector(alike.begin(), alike.begin() + 6), ElementsAre(4, 8, 16, 32, 64, 64));
  // Replicas part with the square root of their steps: some length is right, and it stays.
  const auto apart = periods("local:4,adapt=0.5,most=64", [](auto period) { return static_cast<double>(period) / 32; });
  EXPECT_EQ(apart.back(), 16U);
  const auto far = periods("local:16,adapt=0.5,most=64", [](auto) { return 10.0; });
  EXPECT_EQ(far.back(), 1U);
}

TEST(Policies, WhatIsSavedGoesOnAsIfItHadNotStopped) {
  for (const std::string_view spec :
       {"bsp", "local:7", "gossip", "post-local:8,after=0.1", "node:5", "local:4,adapt=0.5,most=32",
        "diloco:12,fragments=2,delay=5", "node:10,delay=5"}) {
    const auto whole = make_sync_policy(spec, context);
    const auto stopped = make_sync_policy(spec, context);
    const auto tell = [](SyncPolicy& policy, std::uint64_t step) {
      std::string all;
      for (const auto& each : policy.react({.point = SyncPoint::step_ended, .step = step})) all += text(each) + ";";
      if (!all.empty()) policy.react({.point = SyncPoint::averaged, .step = step, .spread = 0.1});
      return all;
    };
    for (std::uint64_t step = 1; step <= 53; ++step) {
      tell(*whole, step);
      tell(*stopped, step);
    }
    const auto resumed = make_sync_policy(spec, context);
    resumed->restore(stopped->save());
    for (std::uint64_t step = 54; step <= 200; ++step) ASSERT_EQ(tell(*resumed, step), tell(*whole, step)) << spec;
    EXPECT_THROW(resumed->restore(std::vector<double>{1, 2}), Error);
  }
}

// A period that may grow to an epoch would never grow where nobody knows how long that is.
TEST(Policies, AnAdaptivePeriodKnowsHowFarItMayGrow) {
  const auto make = [](std::string_view spec) { return make_sync_policy(spec, {.steps_per_epoch = 0, .steps = 100}); };
  EXPECT_THAT(support::refusal([&] { make("local:4,adapt=0.5"); }), HasSubstr("name the longest period by most="));
  EXPECT_NO_THROW(make("local:4,adapt=0.5,most=8"));
}

TEST(Policies, AShareOfStepsIsNoStepTooLong) {
  for (const auto& [share, steps] : std::vector<std::pair<std::string, int>>{{"0.07", 7}, {"0.071", 8}, {"0.29", 29}}) {
    const auto policy = make_sync_policy("post-local:1000,after=" + share, {.steps = 100, .world = 4});
    int synchronous = 0;
    for (std::uint64_t step = 0; step < 100; ++step)
      synchronous += policy->react({.point = SyncPoint::step_begins, .step = step}).empty() ? 0 : 1;
    EXPECT_EQ(synchronous, steps) << share;
  }
}

TEST(Policies, WrongSpecsGetOneSentence) {
  EXPECT_THAT(problem("locl:4"), HasSubstr("did you mean 'local'"));
  EXPECT_THAT(problem("telepathy"), HasSubstr("One of: bsp, local"));
  EXPECT_THAT(problem("local:0"), HasSubstr("from 1"));
  EXPECT_THAT(problem("local:2.5"), HasSubstr("whole number"));
  EXPECT_THAT(problem("bsp:4"), HasSubstr("takes no value"));
  EXPECT_THAT(problem("node:4,speed=2"), HasSubstr("'speed'"));
  EXPECT_THAT(problem("hierarchy"), HasSubstr("hierarchy:node=1"));
  EXPECT_THAT(problem("hierarchy:node=2,rack=5"), HasSubstr("no multiple of 2"));
  EXPECT_THAT(problem("hierarchy:world=4,node=8"), HasSubstr("name 'node' before it"));
  EXPECT_THAT(problem("hierarchy:node=0"), HasSubstr("'0'"));
  EXPECT_THAT(problem("local:4+int8"), HasSubstr("--compress"));
  EXPECT_THAT(problem("post-local:16,after=3"), HasSubstr("0 to 1"));
  EXPECT_THAT(problem("diloco:10,fragments=3"),
              HasSubstr("10 / 3 steps, which is no whole number; name as many fragments as divide"));
  EXPECT_THAT(problem("diloco:12,fragments=3,delay=4"), HasSubstr("every 4 steps"));
  EXPECT_THAT(problem("diloco:12,merge=1.5"), HasSubstr("0 to 1"));
  EXPECT_THAT(problem("node:8,delay=8"), HasSubstr("'delay' of the stage 'node' is '8'; give a number from 0 to 7"));
  EXPECT_THAT(problem("local:1,delay=1"), HasSubstr("from 0 to 0"));
  EXPECT_THAT(problem("local:4,delay=1,adapt=0.5"), HasSubstr("leave out one of them"));
  EXPECT_THAT(problem("local:4,most=8"), HasSubstr("no adapt="));
  EXPECT_THAT(problem("hierarchy:node=1,world=8,delay=9"), HasSubstr("from 0 to 7"));
  EXPECT_THAT(problem("hierarchy:delay=3"), HasSubstr("no levels"));
  EXPECT_NO_THROW(check_sync_policy("node:delay=4")) << "before anybody knows how long an epoch is";
  for (const std::string_view periods : {"local:-3", "node:1e10", "slowmo:0", "diloco:0", "local:99999999999999999999",
                                         "local:4,adapt=0.5,most=0", "hierarchy:node=1,node=2", "ssp:-1", "ssp:0.5"})
    EXPECT_THAT(problem(periods), AnyOf(HasSubstr("number from"), HasSubstr("twice"))) << periods;
  EXPECT_THAT(problem("group:0.5"), HasSubstr("number from 1 to 1000"));
  EXPECT_THAT(problem("group:nan"), HasSubstr("number from 1 to 1000"));
  EXPECT_THAT(problem("group:1.3,largest=-1"), HasSubstr("number from 0 to 1000000"));
  EXPECT_THAT(problem("async:staleness=2"), HasSubstr("from 0 to 1"));
  EXPECT_THAT(problem("async:compensate=-1"), HasSubstr("from 0 to 100"));
  EXPECT_THAT(problem("ad-psgd:4"), HasSubstr("takes no value"));
  EXPECT_THAT(problem("slowmo:4,momentum=1"), HasSubstr("'1'"));
  EXPECT_THROW(make_sync_policy("node", {.steps_per_epoch = 0}), Error);
  EXPECT_THROW(make_sync_policy("post-local:4", {.steps = 0}), Error);
}

TEST(Policies, ServersMayOwnSeveralRanges) {
  for (const std::string_view spec : {"async:ranges=64", "ssp:2,ranges=64"})
    EXPECT_EQ(make_sync_policy(spec, {})->server()->ranges, 64U);
  EXPECT_EQ(make_sync_policy("async", {})->server()->ranges, 0U);
}

TEST(Policies, ServersMayHaveRanksOfTheirOwn) {
  for (const std::string_view spec : {"async:servers=2", "ssp:4,servers=2", "group:1.5,servers=2"})
    EXPECT_EQ(make_sync_policy(spec, context)->server()->servers, 2U) << spec;
  EXPECT_EQ(make_sync_policy("async", context)->server()->servers, 0U);
}

TEST(OuterStep, IsWhatItsPaperSays) {
  std::vector<float> change{2};
  std::vector<float> momentum{10};
  // DiLoCo: m = 0.9 m + d; x0 - 0.7 (d + 0.9 m).
  take_outer_step({.rate = 0.7, .momentum = 0.9, .nesterov = true}, change, momentum);
  EXPECT_FLOAT_EQ(momentum[0], 11);
  EXPECT_FLOAT_EQ(change[0], 0.7F * (2 + 0.9F * 11));
  // SlowMo: u = 0.2 u + d / gamma; x0 - alpha gamma u.
  change = {2};
  momentum = {10};
  take_outer_step({.rate = 1, .momentum = 0.2, .unit = 0.5}, change, momentum);
  EXPECT_FLOAT_EQ(momentum[0], 6);
  EXPECT_FLOAT_EQ(change[0], 3);
}

TEST(OuterStep, OfSlowMoGoesByThePeriodsMeanRate) {
  const auto policy = make_sync_policy("slowmo:4", {.world = 2});
  const auto outer_of = [&](std::uint64_t from, const std::vector<double>& rates) {
    std::vector<SyncAction> actions;
    for (std::size_t i = 0; i < rates.size(); ++i)
      actions = policy->react({.point = SyncPoint::step_ended, .step = from + i + 1, .learning_rate = rates[i]});
    return actions.empty() ? OuterStep{} : actions.back().outer;
  };
  EXPECT_EQ(outer_of(0, {0.1, 0.1, 0.1, 0.1}).unit, 0.1);
  EXPECT_NEAR(outer_of(4, {0.3, 0.2, 0.1, 1e-9}).unit, 0.15, 1e-9);  // of this period alone
  // Behind a cosine that has fallen to 0, momentum in units of the rate means nothing: the plain average.
  EXPECT_TRUE(outer_of(8, {0, 0, 0, 0}).is_plain());
  // A checkpoint in the middle.
  outer_of(12, {0.4, 0.4});
  const auto other = make_sync_policy("slowmo:4", {.world = 2});
  other->restore(policy->save());
  EXPECT_NEAR(outer_of(14, {0.2, 0.2}).unit, 0.3, 1e-12);
  other->react({.point = SyncPoint::step_ended, .step = 15, .learning_rate = 0.2});
  const auto resumed = other->react({.point = SyncPoint::step_ended, .step = 16, .learning_rate = 0.2});
  ASSERT_EQ(resumed.size(), 1U);
  EXPECT_NEAR(resumed[0].outer.unit, 0.3, 1e-12);
}

}  // namespace
}  // namespace ranvier
