// Ranks that meet through a store in which earlier ranks have left their traces.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/rendezvous.h"
#include "engine/siblings.h"
#include "ranvier/error.h"
#include "support/on_threads.h"
#include "support/refusal.h"
#include "support/temporary_folder.h"

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

// What each rank receives when rank r gives `word` + r and comes after a random while of up to `late`.
std::vector<std::vector<std::string>> meet_all(Store& store, Rank world, const std::string& word, unsigned seed,
                                               std::chrono::milliseconds late) {
  std::vector<std::vector<std::string>> received(static_cast<std::size_t>(world));
  std::mt19937 random(seed);
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < world; ++rank) {
    const auto delay = std::chrono::microseconds(random() % (1000 * static_cast<unsigned>(late.count()) + 1));
    ranks.emplace_back([&, rank, delay] {
      std::this_thread::sleep_for(delay);
      received[static_cast<std::size_t>(rank)] =
          exchange_through(store, rank, world)(word + std::to_string(rank), steady_clock::now() + 30s);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return received;
}

TEST(StoreExchange, EveryAttemptReceivesItsOwnTexts) {
  const auto store = memory_store();
  for (unsigned attempt = 0; attempt < 12; ++attempt) {
    const Rank world = 1 + static_cast<Rank>((attempt * 7) % 5);  // ranks may be lost and gained between attempts
    const std::string word = "attempt " + std::to_string(attempt) + " rank ";
    std::vector<std::string> expected;
    for (Rank rank = 0; rank < world; ++rank) expected.push_back(word + std::to_string(rank));
    for (const auto& received : meet_all(*store, world, word, attempt, 20ms)) EXPECT_EQ(received, expected);
  }
}

// The same text twice: only the marks tell the attempts apart.
TEST(StoreExchange, NobodyFinishesBeforeAllOfItsAttemptHaveCome) {
  const auto store = memory_store();
  meet_all(*store, 2, "the same ", 0, 0ms);
  std::atomic<bool> second_came = false;
  bool first_finished_early = false;
  std::thread first([&] {
    exchange_through(*store, 0, 2)("the same 0", steady_clock::now() + 30s);
    first_finished_early = !second_came;
  });
  std::this_thread::sleep_for(100ms);
  second_came = true;
  exchange_through(*store, 1, 2)("the same 1", steady_clock::now() + 30s);
  first.join();
  EXPECT_FALSE(first_finished_early);
}

TEST(StoreExchange, NamesThoseWhoCameOnlyToAnEarlierAttempt) {
  const auto store = memory_store();
  meet_all(*store, 3, "text ", 0, 0ms);
  try {
    exchange_through(*store, 0, 3)("text 0", steady_clock::now() + 200ms);
    FAIL() << "two ranks have not come";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::timeout);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("ranks 1, 2 of a world of 3 did not come in time"));
  }
}

// Each waits for somebody whom the others do not have, or who waits for somebody else.
TEST(StoreExchange, SaysThatOthersCameToAWorldOfAnotherSize) {
  const auto store = memory_store();
  std::vector<std::thread> ranks;
  for (const Rank rank : {0, 1})
    ranks.emplace_back([&, rank] {
      try {
        exchange_through(*store, rank, 2 + rank)("text", steady_clock::now() + 2s);  // the other one's thread begins
        ADD_FAILURE() << "rank " << rank << " met a world of another size";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::timeout);
        EXPECT_THAT(error.what(),
                    ::testing::HasSubstr(rank == 0 ? "rank 1 of a world of 2 did not come in time; rank 1 came to a "
                                                     "world of 3: start all of them with the same number of ranks"
                                                   : "rank 2 of a world of 3 did not come in time; rank 0 came to a "
                                                     "world of 2: start all of them with the same number of ranks"));
      }
    });
  for (std::thread& rank : ranks) rank.join();
}

// Knows how often somebody has come as rank 0.
class CountingStore final : public Store {
 public:
  void set(const std::string& key, std::string_view value) override {
    inner_->set(key, value);
    if (key == "rank/0") ++came;
  }
  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    return inner_->get(key, timeout);
  }
  std::int64_t add(const std::string& key, std::int64_t delta) override { return inner_->add(key, delta); }

  std::atomic<int> came = 0;

 private:
  const std::shared_ptr<Store> inner_ = memory_store();
};

// One of them meets the others.
TEST(StoreExchange, ASecondProcessOfTheSameRankIsNoticedWhenAllHaveCome) {
  CountingStore store;
  std::atomic<int> told = 0, met = 0;
  std::vector<std::thread> processes;
  for (const Rank rank : {0, 0, 1})
    processes.emplace_back([&, rank] {
      while (rank == 1 && store.came < 2) std::this_thread::yield();  // or the first meets it before the second comes
      try {
        exchange_through(store, rank, 2)("text", steady_clock::now() + 60s);
        ++met;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::config);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("another process came as rank 0 as well"));
        ++told;
      }
    });
  for (std::thread& each : processes) each.join();
  EXPECT_EQ(told, 1);
  EXPECT_EQ(met, 2);
}

bool has(Store& store, const std::string& key) {
  try {
    store.get(key, 0ms);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Who came first leaves, though others of its world are still to come; who came later may be its next attempt.
TEST(StoreExchange, WhoIsReplacedInAWorldIsToldWithoutWaitingForTheOthers) {
  const auto store = memory_store();
  std::thread first([&] {
    EXPECT_EQ(support::refusal([&] { exchange_through(*store, 1, 3)("text", steady_clock::now() + 10min); },
                               ErrorKind::config),
              "another process came as rank 1 as well; give each a rank of its own");
  });
  while (!has(*store, "rank/1")) std::this_thread::yield();
  const auto old = store->get("rank/1", 0ms);
  std::thread second([&] { EXPECT_NO_THROW(exchange_through(*store, 1, 3)("text", steady_clock::now() + 10min)); });
  first.join();
  EXPECT_NE(store->get("rank/1", 0ms), old);
  support::on_threads(
      2, [&](Rank i) { EXPECT_NO_THROW(exchange_through(*store, 2 * i, 3)("text", steady_clock::now() + 10min)); });
  second.join();
}

TEST(StoreExchange, SaysThatWhatItLeftIsGone) {
  const support::TemporaryFolder folder;
  const auto store = file_store(folder.path() / "store");
  std::thread remover([&] {
    while (!has(*store, "rank/0")) std::this_thread::yield();
    std::filesystem::remove_all(folder.path() / "store");
  });
  EXPECT_EQ(support::refusal([&] { exchange_through(*store, 0, 2)("text", steady_clock::now() + 10min); },
                             ErrorKind::unreachable),
            "what rank 0 left in the store is gone, and nobody can meet it; keep the store, or its folder, until all "
            "ranks of a world have met");
  remover.join();
}

// Ranks of the other one have met each other.
TEST(StoreExchange, SaysThatWhatOthersLeftIsOfAnotherJob) {
  const auto store = memory_store();
  meet_all(*store, 2, "another job ", 0, 0ms);
  EXPECT_EQ(support::refusal([&] { exchange_through(*store, 1, 2)("text", steady_clock::now() + 100ms); },
                             ErrorKind::timeout),
            "rank 0 of a world of 2 did not come in time; what is theirs in the store is of an earlier attempt or "
            "another job: start all of them, and give each job a store of its own, or allow more time (join_timeout, "
            "--join-timeout)");
}

TEST(StoreExchange, NamesThoseOfAGroupByTheirNumbersInTheWorld) {
  const auto store = memory_store();
  try {
    exchange_through(*store, 0, 3, {.join_timeout_name = "timeout=", .world_ranks = {3, 5, 2}})(
        "text", steady_clock::now() + 200ms);
    FAIL() << "two ranks have not come";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "ranks 5 (1 of its group), 2 of a group of 3 did not come in time; start all of them, or allow more "
                 "time (timeout=)");
  }
}

TEST(StoreExchange, OfAGroupEndsWhenAnotherGroupHasLostARankThatIsToCome) {
  const auto siblings = std::make_shared<Siblings>();
  const FlightRecorder recorder;
  const auto* const engine = reinterpret_cast<const Engine*>(siblings.get());  // a name, no more
  siblings->join(engine, "", recorder, nullptr);
  std::thread death([&] {
    std::this_thread::sleep_for(100ms);
    siblings->failed(engine, Error(ErrorKind::peer_lost, "rank 5 died", 5));
    siblings->departed(engine, 4);  // because of that
  });
  const auto store = memory_store();
  const auto start = steady_clock::now();
  try {
    exchange_through(*store, 0, 3, {.world_ranks = {3, 4, 5}, .siblings = siblings})("text", start + 10min);
    ADD_FAILURE() << "two ranks have not come";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
    EXPECT_STREQ(error.what(), "rank 5 (2 of its group) will not come to a group of 3: rank 5 died");
  }
  death.join();
  siblings->leave(engine);
}

// What each of these ranks throws, which come to groups of so many.
std::vector<std::string> told_in_groups(const std::vector<std::pair<Rank, std::vector<Rank>>>& ranks) {
  const auto store = memory_store();
  const auto siblings = std::make_shared<Siblings>();
  std::vector<std::string> sentences(ranks.size());
  support::on_threads(static_cast<Rank>(ranks.size()), [&](Rank index) {
    const auto& [rank, members] = ranks[static_cast<std::size_t>(index)];
    try {
      exchange_through(*store, rank, static_cast<Rank>(members.size()), {.world_ranks = members, .siblings = siblings})(
          "text", steady_clock::now() + 10min);
      sentences[static_cast<std::size_t>(index)] = "met";
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::timeout);
      sentences[static_cast<std::size_t>(index)] = error.what();
    }
  });
  return sentences;
}

TEST(StoreExchange, RanksThatCameToGroupsOfOtherSizesAreToldWithoutWaiting) {
  const std::vector<Rank> all{0, 1, 2, 3};
  const auto sentences = told_in_groups({{0, {0, 1}}, {1, all}, {2, all}, {3, all}});
  EXPECT_THAT(sentences[0], ::testing::MatchesRegex("rank 0 came to a group of 2 and rank [123] to one of 4; name the "
                                                    "same ranks of a group on all of them"));
  for (const std::size_t rank : {1, 2, 3})
    EXPECT_EQ(sentences[rank], "rank " + std::to_string(rank) +
                                   " came to a group of 4 and rank 0 to one of 2; name the same ranks of a group on "
                                   "all of them");
}

TEST(StoreExchange, WhatAnEarlierAttemptLeftOfAnotherSizeRefusesNobody) {
  const auto store = memory_store();
  meet_all(*store, 3, "earlier ", 0, 0ms);
  const auto siblings = std::make_shared<Siblings>();
  support::on_threads(2, [&](Rank rank) {
    if (rank == 1) std::this_thread::sleep_for(3s);  // the other one has looked around by then
    EXPECT_NO_THROW(exchange_through(*store, rank, 2, {.world_ranks = {0, 1}, .siblings = siblings})(
        "text", steady_clock::now() + 10min));
  });
}

// Each takes the other's place, where nobody else comes.
TEST(StoreExchange, TwoWhoComeAsOneRankOfAGroupAreBothTold) {
  const auto sentences = told_in_groups({{0, {0, 1}}, {0, {2, 3}}});
  EXPECT_EQ(sentences[0], "another process came as rank 0 as well; name the same ranks of a group on all of them");
  EXPECT_EQ(sentences[1],
            "another process came as rank 2 (0 of its group) as well; name the same ranks of a group on all of them");
}

TEST(StoreExchange, SaysWhomItWaitedForWhenTheStoreWent) {
  class GoneStore final : public Store {
   public:
    void set(const std::string&, std::string_view) override {}
    std::string get(const std::string&, std::chrono::milliseconds) override {
      throw Error(ErrorKind::unreachable, "the store has gone");
    }
    std::int64_t add(const std::string&, std::int64_t) override { return 0; }
  } store;
  EXPECT_EQ(support::refusal([&] { exchange_through(store, 0, 2)("text", steady_clock::now() + 10min); },
                             ErrorKind::unreachable),
            "the store has gone; this was waiting for rank 1 of a world of 2");
}

}  // namespace
}  // namespace ranvier::engine
