// What control planes conclude, on a clock that the test moves and a network that is a queue.
#include "engine/control_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>
#include <span>

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

const ControlWatch::Time start{};
const ControlOptions limits{.suspect_after = 1000ms, .dead_after = 3000ms, .interface_address = {}};

News heartbeat(Rank origin) { return {.type = NewsType::heartbeat, .origin = origin}; }
News departure(Rank origin) { return {.type = NewsType::departure, .origin = origin}; }

// A world whose connections deliver in an order drawn from a seed, but each in its own order.
class Gossip {
 public:
  Gossip(Rank world, unsigned seed) : faults(static_cast<std::size_t>(world)), random_(seed) {
    for (Rank rank = 0; rank < world; ++rank) {
      watches_.emplace_back(rank, world, limits, start);
      departures.emplace_back();
    }
  }

  void kill(Rank victim) {
    dead_.insert(victim);
    for (const Rank neighbour : control_neighbours(victim, size())) wires_[{victim, neighbour}].push_back(std::nullopt);
  }
  void leave(Rank leaver) {
    for (const Rank neighbour : control_neighbours(leaver, size()))
      wires_[{leaver, neighbour}].push_back(departure(leaver));
    kill(leaver);
  }
  void give_up(Rank rank, const Error& why) {
    ControlWatch::Outcome outcome;
    watches_[static_cast<std::size_t>(rank)].give_up(why, outcome);
    carry_out(rank, outcome);
  }

  void deliver_everything() {
    for (;;) {
      std::vector<std::pair<Rank, Rank>> ready;
      for (const auto& [wire, queue] : wires_)
        if (!queue.empty()) ready.push_back(wire);
      if (ready.empty()) return;
      const auto [from, to] = ready[std::uniform_int_distribution<std::size_t>(0, ready.size() - 1)(random_)];
      auto& queue = wires_[{from, to}];
      const auto news = queue.front();
      queue.pop_front();
      if (dead_.contains(to)) continue;
      ControlWatch::Outcome outcome;
      auto& watch = watches_[static_cast<std::size_t>(to)];
      if (news)
        watch.heard(from, *news, start, outcome);
      else
        watch.ended(from, outcome);
      carry_out(to, outcome);
    }
  }

  std::vector<std::vector<Error>> faults;  // by rank
  std::vector<std::vector<Rank>> departures;
  std::size_t messages = 0;

 private:
  Rank size() const { return static_cast<Rank>(watches_.size()); }

  void carry_out(Rank rank, const ControlWatch::Outcome& outcome) {
    for (const News& news : outcome.pass_on)
      for (const Rank neighbour : control_neighbours(rank, size())) {
        wires_[{rank, neighbour}].push_back(news);
        ++messages;
      }
    const auto index = static_cast<std::size_t>(rank);
    if (outcome.fault) faults[index].push_back(*outcome.fault);
    std::ranges::copy(outcome.departures, std::back_inserter(departures[index]));
  }

  std::vector<ControlWatch> watches_;
  std::map<std::pair<Rank, Rank>, std::deque<std::optional<News>>> wires_;  // empty news: the end
  std::set<Rank> dead_;
  std::mt19937 random_;
};

TEST(ControlWatch, RanksThatWaitInDifferentCallsUnderOneNumberDisagree) {
  const MessageHeader reduce{.sequence = 7, .collective = Collective::reduce, .root_or_dims = 0};
  MessageHeader other = reduce;
  other.root_or_dims = 1;
  const auto waiting = [](Rank origin, const MessageHeader& call) {
    return News{.type = NewsType::waiting, .origin = origin, .call = call};
  };
  for (const bool neighbour_first : {false, true}) {
    ControlWatch watch(0, 2, limits, start);
    ControlWatch::Outcome outcome;
    if (neighbour_first) watch.heard(1, waiting(1, other), start, outcome);
    EXPECT_FALSE(outcome.fault);
    watch.waits_in(reduce, outcome);
    if (!neighbour_first) {
      ASSERT_EQ(outcome.pass_on.size(), 1U);
      EXPECT_EQ(outcome.pass_on[0].call, reduce);
      EXPECT_FALSE(outcome.fault);
      watch.heard(1, waiting(1, other), start, outcome);
    }
    ASSERT_TRUE(outcome.fault);
    EXPECT_EQ(outcome.fault->kind(), ErrorKind::mismatch);
    EXPECT_EQ(outcome.fault->culprit(), 1);
    EXPECT_THAT(outcome.fault->what(), testing::HasSubstr("rank 1 runs reduce #7"));
  }
}

TEST(ControlWatch, RanksThatWaitInTheSameCallOrAtDifferentPlacesAgree) {
  const MessageHeader call{.sequence = 7, .collective = Collective::reduce};
  MessageHeader later = call;
  later.sequence = 8;
  later.collective = Collective::barrier;
  for (const MessageHeader& theirs : {call, later}) {
    ControlWatch watch(0, 2, limits, start);
    ControlWatch::Outcome outcome;
    watch.waits_in(call, outcome);
    watch.waits_in(call, outcome);
    watch.heard(1, {.type = NewsType::waiting, .origin = 1, .call = theirs}, start, outcome);
    EXPECT_FALSE(outcome.fault);
    EXPECT_EQ(outcome.pass_on.size(), 1U) << "one call is told once, and not passed on";
  }
}

TEST(ControlWatch, RanksThatClaimOtherCallsDisagree) {
  const auto called = [](CallHistory& calls, Rank root) {
    calls.add(CallStamp::of({.collective = Collective::broadcast, .root_or_dims = static_cast<std::uint32_t>(root)}));
  };
  for (const NewsType type : {NewsType::heartbeat, NewsType::departure})
    for (const bool different : {false, true})
      for (const bool ahead : {false, true}) {
        const auto ours = std::make_shared<CallHistory>(2);
        CallHistory theirs(2);
        called(theirs, different ? 1 : 0);
        if (!ahead) called(*ours, 0);
        ControlWatch watch(0, 2, limits, start);
        watch.follow(ours);
        ControlWatch::Outcome outcome;
        watch.heard(1, {.type = type, .origin = 1, .claim = theirs.claim()}, start, outcome);
        EXPECT_EQ(watch.is_ahead(1), ahead);
        EXPECT_EQ(outcome.fault.has_value(), different && !ahead);
        if (ahead) called(*ours, 0);
        watch.tick(start, outcome);
        EXPECT_FALSE(watch.is_ahead(1));
        ASSERT_EQ(outcome.fault.has_value(), different);
        if (!different) continue;
        EXPECT_EQ(outcome.fault->kind(), ErrorKind::mismatch);
        EXPECT_EQ(outcome.fault->culprit(), 1);
        EXPECT_THAT(outcome.fault->what(), testing::HasSubstr("rank 1 called broadcast #0"));
      }
}

TEST(ControlWatch, NeighboursAreMutualAndFewAndReachAll) {
  for (Rank world = 1; world <= 130; ++world) {
    const std::vector<Rank> own = control_neighbours(0, world);
    EXPECT_LE(own.size(), 2U * static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(world))));
    EXPECT_TRUE(world == 1 || std::ranges::count(own, 1) == 1);
    for (Rank rank = 0; rank < world; ++rank)
      for (const Rank neighbour : control_neighbours(rank, world)) {
        EXPECT_NE(neighbour, rank);
        EXPECT_EQ(std::ranges::count(control_neighbours(neighbour, world), rank), 1);
      }
  }
}

TEST(ControlWatch, ADeathReachesEverySurvivorOnceInAnyOrderOfDelivery) {
  for (Rank world = 2; world <= 24; ++world) {
    Gossip gossip(world, static_cast<unsigned>(world));
    const Rank victim = world / 3;
    gossip.kill(victim);
    gossip.deliver_everything();
    for (Rank rank = 0; rank < world; ++rank) {
      const auto& faults = gossip.faults[static_cast<std::size_t>(rank)];
      if (rank == victim) continue;
      ASSERT_EQ(faults.size(), 1U) << rank << " of " << world;
      EXPECT_EQ(faults[0].culprit(), victim);
      EXPECT_EQ(faults[0].kind(), ErrorKind::peer_lost);
    }
    const auto rank_count = static_cast<std::size_t>(world);
    EXPECT_LE(gossip.messages, rank_count * control_neighbours(0, world).size());  // each rank passes it on once
  }
}

TEST(ControlWatch, SeveralDeathsAtOnceReachEverySurvivor) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const Rank world = 4 + static_cast<Rank>(random() % 30);
    std::set<Rank> victims;
    // Fewer than a rank has neighbours, so that no survivor is cut off.
    while (victims.size() + 1 < std::min<std::size_t>(control_neighbours(0, world).size(), 4))
      victims.insert(static_cast<Rank>(random() % static_cast<unsigned>(world)));
    Gossip gossip(world, seed);
    for (const Rank victim : victims) gossip.kill(victim);
    gossip.deliver_everything();
    for (Rank rank = 0; rank < world; ++rank) {
      if (victims.contains(rank)) continue;
      const auto& faults = gossip.faults[static_cast<std::size_t>(rank)];
      ASSERT_EQ(faults.size(), 1U) << "rank " << rank << ", seed " << seed;
      EXPECT_TRUE(victims.contains(faults[0].culprit()));
    }
  }
}

TEST(ControlWatch, DeparturesReachEveryRankOnceAndAreNoFaults) {
  for (Rank world = 2; world <= 24; ++world) {
    Gossip gossip(world, static_cast<unsigned>(world));
    gossip.leave(world - 1);
    gossip.deliver_everything();
    for (std::size_t rank = 0; rank + 1 < static_cast<std::size_t>(world); ++rank) {
      EXPECT_THAT(gossip.departures[rank], ElementsAre(world - 1));
      EXPECT_THAT(gossip.faults[rank], IsEmpty());
    }
  }
}

TEST(ControlWatch, WhoGivesUpTellsTheOthersOnceAndIsNotToldBack) {
  Gossip gossip(8, 1);
  gossip.give_up(3, Error(ErrorKind::mismatch, "first", 1));
  gossip.give_up(3, Error(ErrorKind::timeout, "second", 2));
  gossip.deliver_everything();
  for (std::size_t rank = 0; rank < 8; ++rank) {
    ASSERT_EQ(gossip.faults[rank].size(), rank == 3 ? 0U : 1U);
    if (rank != 3) {
      EXPECT_STREQ(gossip.faults[rank][0].what(), "first");
    }
  }
}

// Advances a watch of rank 0 in a world of 2 in heartbeats of 250 ms.
class Silence : public testing::Test {
 protected:
  ControlWatch::Outcome advance(std::chrono::milliseconds time, bool neighbour_talks) {
    ControlWatch::Outcome outcome;
    for (const auto end = now + time; now < end;) {
      now += 250ms;
      if (neighbour_talks) watch.heard(1, heartbeat(1), now, outcome);
      watch.tick(now, outcome);
    }
    return outcome;
  }

  ControlWatch::Time now = start;
  ControlWatch watch{0, 2, limits, start};
};

TEST_F(Silence, IsLoggedOnceAndThenEndsTheJob) {
  advance(10s, true);
  EXPECT_THAT(advance(750ms, false).log, IsEmpty());
  EXPECT_THAT(advance(500ms, false).log, ElementsAre("rank 1 silent for 1.0 s"));
  const auto later = advance(1500ms, false);
  EXPECT_THAT(later.log, IsEmpty());
  EXPECT_FALSE(later.fault);
  const auto outcome = advance(250ms, false);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->culprit(), 1);
  EXPECT_THAT(outcome.fault->what(), testing::StartsWith("rank 0 has heard nothing from rank 1 for 3.0 s"));
  ASSERT_EQ(outcome.pass_on.size(), 1U);
  EXPECT_FALSE(advance(10s, false).fault);
}

TEST_F(Silence, SaysWhenItWillMatter) {
  EXPECT_EQ(watch.next_verdict(), ControlWatch::Time::max()) << "nothing has been heard yet";
  advance(1s, true);
  EXPECT_EQ(watch.next_verdict(), now + limits.suspect_after);
  const auto death = now + limits.dead_after;
  advance(2750ms, false);
  EXPECT_EQ(watch.next_verdict(), death);
  EXPECT_FALSE(watch.is_lost(1));
  ControlWatch::Outcome outcome;
  watch.tick(death, outcome);
  EXPECT_TRUE(outcome.fault);
  EXPECT_TRUE(watch.is_lost(1));
  EXPECT_EQ(watch.next_verdict(), ControlWatch::Time::max());
}

TEST_F(Silence, IsWhatLosesARankAndNothingElse) {
  advance(1s, true);
  ControlWatch::Outcome outcome;
  watch.give_up({ErrorKind::peer_lost, "the link to rank 1 broke", 1}, outcome);
  EXPECT_FALSE(watch.is_lost(1)) << "it may still read";
  advance(1s, false);
  EXPECT_TRUE(watch.is_lost(1));
}

TEST_F(Silence, ThatEndsInTimeIsForgiven) {
  advance(1s, true);
  EXPECT_FALSE(advance(2500ms, false).fault);
  advance(250ms, true);
  const auto outcome = advance(2500ms, false);
  EXPECT_FALSE(outcome.fault);
  EXPECT_THAT(outcome.log, ElementsAre("rank 1 silent for 1.0 s"));
}

TEST_F(Silence, IsNoneWhereOtherSignsComeInTime) {
  advance(1s, true);
  const auto heard = now;
  EXPECT_THAT(watch.quiet(now), IsEmpty());
  for (int i = 0; i < 40; ++i) {
    const auto outcome = advance(500ms, false);
    EXPECT_FALSE(outcome.fault);
    EXPECT_THAT(outcome.log, IsEmpty());
    EXPECT_THAT(watch.quiet(now), ElementsAre(1));
    watch.saw(1, now);
    EXPECT_THAT(watch.quiet(now), IsEmpty());
  }
  watch.saw(1, heard);  // which says nothing new
  EXPECT_FALSE(advance(2750ms, false).fault);
  EXPECT_TRUE(advance(250ms, false).fault);
}

TEST_F(Silence, BeforeTheFirstSignIsAllowed) {
  const auto outcome = advance(100s, false);
  EXPECT_FALSE(outcome.fault);
  EXPECT_THAT(outcome.log, IsEmpty());
}

TEST_F(Silence, AfterADepartureIsNatural) {
  advance(1s, true);
  ControlWatch::Outcome left;
  watch.heard(1, departure(1), now, left);
  watch.ended(1, left);
  EXPECT_THAT(left.departures, ElementsAre(1));
  EXPECT_FALSE(left.fault);
  EXPECT_FALSE(advance(100s, false).fault);
}

TEST_F(Silence, OfAConnectionThatBrokeHereIsToldByWhatBrokeIt) {
  advance(1s, true);
  ControlWatch::Outcome broken;
  watch.ended(1, broken, "a record was forged");
  ASSERT_TRUE(broken.fault);
  EXPECT_THAT(broken.fault->what(), testing::HasSubstr("its control connection broke (a record was forged)"));
}

TEST_F(Silence, WhileThisProcessSleptIsNotHeldAgainstOthers) {
  advance(1s, true);
  now += 60s;
  const auto outcome = advance(2750ms, false);
  EXPECT_FALSE(outcome.fault);
  EXPECT_TRUE(advance(500ms, false).fault);
}

// ---- The wire.

TEST(ControlNews, ArriveWholeHoweverTheyAreCut) {
  const std::vector<News> sent{
      heartbeat(3),
      {.type = NewsType::fault, .origin = 1, .kind = ErrorKind::timeout, .culprit = 2, .text = "why"},
      {.type = NewsType::fault,
       .origin = 0,
       .kind = ErrorKind::internal,
       .culprit = -1,
       .text = std::string(most_news_text, 'y')},
      departure(2),
      {.type = NewsType::heartbeat, .origin = 1, .claim = CallClaim{.count = 7, .digest = 9, .kind = 1, .size = 3}}};
  std::vector<std::byte> wire;
  for (const News& news : sent) append_frame(wire, news);
  for (std::size_t piece = 1; piece < 1200; piece += 7) {
    NewsReader reader(4);
    std::size_t next = 0;
    for (std::size_t at = 0; at < wire.size();) {
      const std::size_t count = std::min({piece, wire.size() - at, reader.space().size()});
      ASSERT_GT(count, 0U);
      std::copy_n(wire.begin() + static_cast<std::ptrdiff_t>(at), count, reader.space().begin());
      reader.filled(count);
      at += count;
      while (const auto news = reader.next()) {
        ASSERT_LT(next, sent.size());
        EXPECT_EQ(news->type, sent[next].type);
        EXPECT_EQ(news->origin, sent[next].origin);
        EXPECT_EQ(news->kind, sent[next].kind);
        EXPECT_EQ(news->culprit, sent[next].culprit);
        EXPECT_EQ(news->text, sent[next].text);
        ASSERT_EQ(news->claim.has_value(), sent[next].claim.has_value());
        if (news->claim) {
          EXPECT_EQ(news->claim->count, 7U);
          EXPECT_EQ(news->claim->size, 3U);
        }
        ++next;
      }
      ASSERT_FALSE(reader.garbage());
    }
    EXPECT_EQ(next, sent.size());
  }
}

TEST(ControlNews, WhatMakesNoSenseIsGarbage) {
  const auto garbage = [](const News& news, std::size_t flip_at, std::byte flip) {
    std::vector<std::byte> wire;
    append_frame(wire, news);
    wire[flip_at] ^= flip;
    NewsReader reader(4);
    std::ranges::copy(wire, reader.space().begin());
    reader.filled(wire.size());
    return !reader.next() && reader.garbage();
  };
  const News fault{.type = NewsType::fault, .origin = 1, .kind = ErrorKind::timeout, .culprit = 2, .text = "why"};
  EXPECT_FALSE(garbage(fault, 0, std::byte{0}));
  EXPECT_TRUE(garbage(fault, 0, std::byte{0x10}));      // type
  EXPECT_TRUE(garbage(fault, 1, std::byte{0x40}));      // kind
  EXPECT_TRUE(garbage(fault, 3, std::byte{0x10}));      // text longer than allowed
  EXPECT_TRUE(garbage(heartbeat(1), 2, std::byte{1}));  // a heartbeat has no text
  EXPECT_TRUE(garbage(fault, 4, std::byte{0x10}));      // origin beyond the world
  EXPECT_TRUE(garbage(fault, 7, std::byte{0x80}));      // origin below 0
  EXPECT_TRUE(garbage(fault, 8, std::byte{0x20}));      // culprit beyond the world
  EXPECT_TRUE(garbage(fault, 11, std::byte{0x80}));     // culprit below -1
}

}  // namespace
}  // namespace ranvier::engine
