// The parameter server's state machines under every order of events that random workers come up with.
#include "ranvier/server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <random>

#include "ranvier/error.h"

namespace ranvier {
namespace {

TEST(ParameterShard, AppliesEachPushOnceHoweverOftenItIsSent) {
  std::mt19937 random(3);
  constexpr Rank workers = 5;
  ParameterShard shard({0, 0}, workers, {.damping = ServerRule::Damping::share});
  std::vector<std::uint64_t> sent(workers, 0);
  std::uint64_t applied = 0;
  const std::vector<float> gradient{-5, 5};
  for (int event = 0; event < 5000; ++event) {
    const auto worker = static_cast<Rank>(random() % workers);
    auto& last = sent[static_cast<std::size_t>(worker)];
    // A new one, or one that the worker believes to be lost.
    const std::uint64_t number = last == 0 || random() % 2 == 0 ? last + 1 : 1 + random() % last;
    EXPECT_EQ(shard.push(worker, number, 1, 0.2, gradient), number > last);
    if (number > last) ++applied;
    last = std::max(last, number);
  }
  EXPECT_EQ(shard.pushes(), applied);
  EXPECT_FLOAT_EQ(shard.pull(0)[0], static_cast<float>(applied));
}

// Workers that send a push until they hear of it, over a network that loses, doubles, delays and reorders whatever
// passes, answers too. Each gradient is a power of two, so that the sum shows what was applied how often.
TEST(ParameterShard, AppliesEachPushOnceOverANetworkThatLosesAndDoubles) {
  struct Message {
    Rank worker;
    std::uint64_t number;
    bool is_answer;
  };
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto chance = [&](unsigned in) { return random() % in == 0; };
    constexpr Rank workers = 3;
    constexpr std::uint64_t pushes = 7;  // of each: 21 bits, which a float holds
    ParameterShard shard({0}, workers, {.damping = ServerRule::Damping::share});
    std::array<std::uint64_t, workers> heard{};
    std::vector<Message> under_way;
    const auto pass = [&](const Message& message) {
      for (int copies = chance(4) ? 0 : chance(3) ? 3 : 1; copies > 0; --copies) under_way.push_back(message);
    };
    const auto all_heard = [&] { return std::ranges::all_of(heard, [](auto each) { return each == pushes; }); };
    for (int event = 0; !all_heard(); ++event) {
      ASSERT_LT(event, 100'000) << "seed " << seed;
      if (under_way.empty() || chance(5)) {
        const auto worker = static_cast<Rank>(random() % workers);
        if (const auto last = heard[static_cast<std::size_t>(worker)]; last < pushes) pass({worker, last + 1, false});
        continue;
      }
      const auto at = under_way.begin() + static_cast<std::ptrdiff_t>(random() % under_way.size());
      const auto [worker, number, is_answer] = *at;
      under_way.erase(at);
      auto& last = heard[static_cast<std::size_t>(worker)];
      if (is_answer) {
        last = std::max(last, number);
        continue;
      }
      const std::vector<float> gradient{
          -std::ldexp(1.0F, static_cast<int>(pushes) * worker + static_cast<int>(number) - 1)};
      shard.push(worker, number, 1, 1, gradient);
      pass({worker, number, true});
    }
    EXPECT_EQ(shard.pull(0)[0], std::ldexp(1.0F, workers * pushes) - 1) << "seed " << seed;
    EXPECT_EQ(shard.pushes(), workers * pushes);
  }
}

TEST(ParameterShard, StaleGradientsCountLess) {
  ParameterShard shard({0}, 3, {.damping = ServerRule::Damping::staleness});
  const std::vector<float> gradient{-1};
  for (const Rank worker : {0, 1, 2}) shard.pull(worker);
  shard.push(0, 1, 1, 0.5, gradient);
  EXPECT_FLOAT_EQ(shard.pull(0)[0], 0.5F);  // nobody in between: its share
  shard.push(1, 1, 1, 0.5, gradient);
  EXPECT_FLOAT_EQ(shard.pull(1)[0], 1);  // one was
  shard.push(2, 1, 1, 0.5, gradient);
  EXPECT_FLOAT_EQ(shard.pull(2)[0], 1 + 1.0F / 3);
}

TEST(ParameterShard, ExcessStalenessIsWhatSoManyWorkersDoNotAlwaysHave) {
  ParameterShard shard({0}, 8, {.damping = ServerRule::Damping::excess, .workers = 2});
  const std::vector<float> gradient{-1};
  for (const Rank worker : {0, 1}) shard.pull(worker);
  shard.push(0, 1, 1, 0.5, gradient);
  shard.pull(0);
  shard.push(0, 2, 1, 0.5, gradient);
  EXPECT_FLOAT_EQ(shard.pull(0)[0], 1);
  shard.push(1, 1, 1, 0.5, gradient);  // two were faster, of whom one always is
  EXPECT_FLOAT_EQ(shard.pull(1)[0], 1 + 0.5F / 2);
}

TEST(ServerRule, WhoOnlyServesDoesNotTrain) {
  const std::vector<int> groups{0, 1, 0, serves_only};
  for (const std::size_t rank : {0, 1, 2}) EXPECT_TRUE(trains(groups, rank));
  EXPECT_FALSE(trains(groups, 3));
  const std::vector<int> below{0, -2};
  EXPECT_FALSE(trains(below, 1)) << "as Communicator::split takes every negative color for nobody's";
  EXPECT_TRUE(trains({}, 3)) << "without servers everybody does";
}

TEST(ParameterShard, CompensatesForWhatAGradientHasMissed) {
  ParameterShard shard({2}, 2, {.damping = ServerRule::Damping::share, .compensation = 0.5});
  shard.pull(0);
  shard.pull(1);
  shard.push(0, 1, 2, 0.5, std::vector<float>{1});  // 2 - 2 / 2 * 1
  EXPECT_FLOAT_EQ(shard.pull(0)[0], 1);
  shard.push(1, 1, 2, 0.5, std::vector<float>{3});  // g = 3 + 0.5 * 9 * (1 - 2)
  EXPECT_FLOAT_EQ(shard.pull(1)[0], 1 - (3 - 4.5F));
}

TEST(ParameterShard, RefusesWhatDoesNotFit) {
  ParameterShard shard({0, 0}, 2, {});
  EXPECT_THROW(shard.push(0, 1, 1, 0.5, std::vector<float>{1}), Error);
  EXPECT_THROW(shard.push(0, 2, 1, 0.5, std::vector<float>{1, 1}), Error) << "number 1 is missing";
}

// The worst interleavings: whoever may begin does, and the slowest is kept back as long as any other can move.
TEST(StaleClocks, NobodyIsEverFurtherAheadThanTheBound) {
  std::mt19937 random(11);
  for (const std::uint64_t bound : {0U, 1U, 3U, 10U})
    for (const bool adversary : {false, true}) {
      constexpr Rank workers = 6;
      StaleClocks clocks(workers, bound);
      std::vector<std::uint64_t> steps(workers, 0);  // complete
      std::uint64_t most = 0;
      for (int event = 0; event < 3000; ++event) {
        std::vector<Rank> able;
        for (Rank worker = 0; worker < workers; ++worker)
          if (clocks.may_begin(worker)) able.push_back(worker);
        ASSERT_FALSE(able.empty()) << "the slowest may always begin";
        auto chosen = able[random() % able.size()];
        if (adversary)
          chosen = *std::ranges::max_element(able, {}, [&](Rank w) { return steps[static_cast<std::size_t>(w)]; });
        // How far the step that it begins is from the one that the slowest is in.
        const std::uint64_t ahead = steps[static_cast<std::size_t>(chosen)] - std::ranges::min(steps);
        ASSERT_LE(ahead, bound);
        most = std::max(most, ahead);
        ++steps[static_cast<std::size_t>(chosen)];
        clocks.ended_step(chosen);
      }
      if (adversary) {
        EXPECT_EQ(most, bound) << "a bound that is never reached holds workers back for nothing";
      }
    }
  StaleClocks free(2, {});
  for (int step = 0; step < 100; ++step) free.ended_step(0);
  EXPECT_TRUE(free.may_begin(0));
}

TEST(StaleClocks, NobodyWaitsForThoseWhoRestAndAllBeginAlikeBehindThat) {
  StaleClocks clocks(3, 1);
  for (int step = 0; step < 2; ++step) clocks.ended_step(0);
  EXPECT_FALSE(clocks.may_begin(0));
  clocks.rests(1);
  EXPECT_FALSE(clocks.may_begin(0)) << "of worker 2";
  clocks.rests(2);
  EXPECT_TRUE(clocks.may_begin(0));
  clocks.goes_on(2);
  EXPECT_FALSE(clocks.may_begin(0)) << "not all have rested: it is as far behind as it was";
  EXPECT_TRUE(clocks.may_begin(2));
  clocks.rests(2);
  clocks.rests(0);  // all
  for (Rank worker = 0; worker < 3; ++worker) clocks.goes_on(worker);
  clocks.ended_step(0);
  EXPECT_TRUE(clocks.may_begin(0));
  clocks.ended_step(0);
  EXPECT_FALSE(clocks.may_begin(0)) << "its steps from before count no more, and those since then do";
}

TEST(SampleGate, WhoRestsIsAnsweredAtOnceAndKeepsNobodyWaiting) {
  SampleGate gate(2, 0, 0);
  gate.asks(0, 100, 1);
  ASSERT_EQ(gate.decide().size(), 1U);
  gate.ended_step(0, 1);
  gate.asks(0, 100, 1);
  EXPECT_TRUE(gate.decide().empty()) << "worker 1 has not ended its first step";
  gate.asks(1, 100, 0);
  const auto decisions = gate.decide();
  ASSERT_EQ(decisions.size(), 2U);
  EXPECT_EQ(decisions[0].worker, 0);
  EXPECT_EQ(decisions[0].start.count, 1U);
  EXPECT_EQ(decisions[1].worker, 1);
  EXPECT_EQ(decisions[1].start.count, 0U);
}

TEST(SampleGate, GivesEachSampleOnceInAnyOrderOfEventsAndStopsAllTogether) {
  std::mt19937 random(7);
  for (const auto bound : {std::optional<std::uint64_t>{}, std::optional<std::uint64_t>{1}})
    for (int repeat = 0; repeat < 50; ++repeat) {
      constexpr Rank world = 4;
      SampleGate gate(world, bound, 10);
      enum class State { idle, waiting, computing, stopped };
      std::array<State, world> states{};
      std::array<std::uint64_t, world> holds{};
      std::uint64_t next = 10;
      std::uint64_t done = 10;
      for (const std::uint64_t stop : {57U, 123U}) {
        states.fill(State::idle);
        while (std::ranges::any_of(states, [](State state) { return state != State::stopped; })) {
          const auto worker = static_cast<std::size_t>(random() % world);
          if (states[worker] == State::idle) {
            gate.asks(static_cast<Rank>(worker), stop, 1 + random() % 5);
            states[worker] = State::waiting;
          } else if (states[worker] == State::computing) {
            gate.ended_step(static_cast<Rank>(worker), holds[worker]);
            done += holds[worker];
            states[worker] = State::idle;
          }
          for (const auto& [rank, start] : gate.decide()) {
            const auto at = static_cast<std::size_t>(rank);
            ASSERT_EQ(states[at], State::waiting);
            ASSERT_EQ(start.first, next) << "samples are given out in their order";
            ASSERT_EQ(start.done, done);
            next += start.count;
            holds[at] = start.count;
            states[at] = start.count == 0 ? State::stopped : State::computing;
          }
        }
        ASSERT_EQ(next, stop);
        ASSERT_EQ(done, stop);
      }
    }
}

}  // namespace
}  // namespace ranvier
