// Who drives, who waits, and what is left after a failure; on the in-process loopback.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "support/cluster.h"
#include "support/no_more_threads.h"
#include "support/refusal.h"
#include "support/transport_over.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using support::run_ranks;
using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;

TEST(EngineTest, OperationsThatNobodyWaitsForEndAllTheSame) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> data(1000, 1.0F);
    const Work work = comm.start({.input = data, .output = data});
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!work.done() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(work.done());
    EXPECT_THAT(data, Each(2.0F));
  });
}

// Moves data where the thread that made it calls it, as MPI does if a program has started it so.
class OfOneThread final : public support::TransportOver {
 public:
  using TransportOver::TransportOver;
  std::size_t try_send(Rank to, Lane lane, ConstBytes head, ConstBytes body) override {
    return is_there() ? TransportOver::try_send(to, lane, head, body) : 0;
  }
  ConstBytes try_recv(Rank from, Lane lane, Bytes into) override {
    return is_there() ? TransportOver::try_recv(from, lane, into) : ConstBytes();
  }

 private:
  bool is_there() const { return std::this_thread::get_id() == thread_; }
  const std::thread::id thread_ = std::this_thread::get_id();
};

TEST(EngineTest, WhoCanMoveNothingLetsOthersDriveThatWaitToo) {
  auto world = loopback_world(2);
  const CommunicatorOptions options{.timeout = 10s};
  std::vector<float> data(1000, 1.0F), others(data);
  std::latch begun(1);
  std::jthread peer([&] {
    const auto comm = Communicator::over(std::move(world[1]), options);
    begun.wait();
    try {
      comm->all_reduce(std::span(others));
      comm->barrier();
    } catch (const Error&) {  // rank 0 says what it was
    }
  });
  const auto comm = Communicator::over(std::make_unique<OfOneThread>(std::move(world[0])), options);
  Work work = comm->start({.input = data, .output = data});
  std::string problem;
  std::jthread waiter([&, waited = work]() mutable {
    try {
      waited.wait();
    } catch (const Error& error) {
      problem = error.what();
    }
  });
  std::this_thread::sleep_for(50ms);  // it drives
  begun.count_down();
  work.wait();
  comm->barrier();
  waiter.join();
  EXPECT_EQ(problem, "");
  EXPECT_THAT(data, Each(2.0F));
}

// How often all threads but those of ranks have gone to sleep.
std::uint64_t sleeps_of_others(const std::set<int>& ranks) {
  std::uint64_t all = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (ranks.contains(std::stoi(task.path().filename()))) continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;)
      if (word == "voluntary_ctxt_switches:") {
        std::uint64_t count = 0;
        status >> count;
        all += count;
      }
  }
  return all;
}

// That of a rank that waits itself has nothing to do, and is not woken to find that out.
TEST(EngineTest, TheThreadForWhatNobodyWaitsForRestsMeanwhile) {
  constexpr int operations = 1000;
  std::set<int> ranks;
  std::mutex mutex;
  std::uint64_t before = 0, after = 0;
  run_ranks(2, [&](Communicator& comm) {
    {
      const std::lock_guard lock(mutex);
      ranks.insert(gettid());
    }
    std::vector<float> data(100, 1);
    comm.start({.collective = Collective::all_reduce, .input = data, .output = data}).wait();
    comm.barrier();
    if (comm.rank() == 0) before = sleeps_of_others(ranks);
    for (int i = 0; i < operations; ++i) comm.barrier();
    if (comm.rank() == 0) after = sleeps_of_others(ranks);
    comm.barrier();
  });
  EXPECT_LT(after - before, operations / 2);
}

TEST(EngineTest, SettingsThatMakeNoSenseAreRefused) {
  const auto refused = [](const CommunicatorOptions& options) {
    return support::refusal([&] { Communicator::over(std::move(loopback_world(1)[0]), options); });
  };
  EXPECT_THAT(refused({.timeout = std::chrono::milliseconds(-1)}), HasSubstr("-1 ms is over before it begins"));
  for (const double rate : {-5.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(refused({.link_bytes_per_second = rate}), HasSubstr("are no rate of a link"));
  EXPECT_THAT(refused({.world_ranks = {3, 4}}), HasSubstr("world_ranks has 2 ranks for a world of 1"));
}

TEST(EngineTest, WaitAllThrowsWhatTheFirstThatFailedDidFailWith) {
  run_ranks(2, [&](Communicator& comm) {
    const std::vector<float> here(1, 3.0F);
    std::vector<float> there(1), never(1);
    std::vector<Work> works{comm.start_send(here, 1 - comm.rank(), 1), comm.start_recv(there, 1 - comm.rank(), 1)};
    Work::wait_all(works);
    EXPECT_THAT(there, Each(3.0F));
    Work::wait_all({});
    comm.barrier();
    works.push_back(comm.start_recv(never, 1 - comm.rank(), 2, 100ms));
    EXPECT_THROW(Work::wait_all(works), Error);
  });
}

TEST(EngineTest, WithoutAThreadForItNothingIsStartedAndAllAreTold) {
  for (const bool message : {false, true})
    run_ranks(2,
              [message](Communicator& comm) {
                std::vector<float> data(1000, 1.0F);
                std::optional<support::NoMoreThreads> none;
                if (comm.rank() == 0) none.emplace();
                const std::string told = support::refusal(
                    [&] {
                      if (comm.rank() == 1) return comm.all_reduce(data);  // needs none
                      if (message) comm.start_send(data, 1, 0);
                      comm.start({.input = data, .output = data});
                    },
                    ErrorKind::config);
                EXPECT_THAT(
                    told,
                    HasSubstr("rank 0 cannot go on: no thread could be started for operations that nobody waits for"));
                EXPECT_THAT(support::refusal([&] { comm.barrier(); }, ErrorKind::config), HasSubstr("has failed"));
              },
              {.way = "tcp"});
}

// Of a part of a world that shares its cores the transport sees too few ranks to know.
TEST(EngineTest, GivesItsCoreAwayAtOnceWhereItIsToldThatOthersNeedIt) {
  auto transports = loopback_world(1);
  const TransportTraits traits = transports.front()->traits();
  ASSERT_FALSE(traits.crowded());
  ASSERT_GT(traits.polls_before_yield, 0);
  const auto engine =
      std::make_shared<engine::Engine>(std::move(transports.front()), engine::EngineOptions{.crowded = true});
  EXPECT_TRUE(engine->traits().crowded());
  EXPECT_EQ(engine->traits().polls_before_yield, 0);
}

TEST(EngineTest, WaitsInAnyOrderWithMoreOperationsThanLanes) {
  run_ranks(3, [](Communicator& comm) {
    constexpr std::size_t many = 23;
    std::vector<std::vector<std::int32_t>> data(many);
    std::vector<Work> works;
    for (std::size_t i = 0; i < many; ++i) {
      data[i].assign(100 * i + 1, static_cast<std::int32_t>(i) + comm.rank());
      works.push_back(comm.start({.input = data[i], .output = data[i]}));
    }
    for (std::size_t i = many; i-- > 0;) works[i].wait();
    for (std::size_t i = 0; i < many; ++i) EXPECT_THAT(data[i], Each(3 * static_cast<std::int32_t>(i) + 3));
  });
}

TEST(EngineTest, BlockingCallsMayRunBetweenStartedOnes) {
  run_ranks(2, [](Communicator& comm) {
    for (int i = 0; i < 200; ++i) {
      std::vector<float> slow(5000, 1.0F), fast(1, 1.0F);
      Work work = comm.start({.input = slow, .output = slow});
      comm.all_reduce(fast);
      EXPECT_EQ(fast[0], 2.0F);
      work.wait();
      EXPECT_THAT(slow, Each(2.0F));
    }
  });
}

TEST(EngineTest, TheRecordOfAnErrorTellsTheOperationsThatFailedFromThoseUnderWay) {
  std::latch over(1);
  run_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) return over.wait();
    std::vector<float> first(10, 1.0F), second(10, 1.0F);
    const Work other = comm.start({.input = second, .output = second});
    Work late = comm.start({.input = first, .output = first, .timeout = 20ms});
    EXPECT_THROW(late.wait(), Error);
    EXPECT_THROW(Work(other).wait(), Error);
    const auto record = [](const Work& work) -> std::string {
      try {
        std::rethrow_exception(work.error());
      } catch (const Error& error) {
        return error.flight_record();
      }
    };
    EXPECT_THAT(record(late), ContainsRegex("#0 [^\n]* still running\n#1 [^\n]* failed after [^\n]*\n"));
    EXPECT_THAT(record(other), ContainsRegex("#0 [^\n]* failed after [^\n]*\n#1 [^\n]* failed after [^\n]*\n"));
    over.count_down();
  });
}

TEST(EngineTest, SeveralThreadsMayWaitOnOneCommunicator) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<std::vector<float>> data(8, std::vector<float>(2000, 1.0F));
    std::vector<Work> works;
    for (auto& vector : data) works.push_back(comm.start({.input = vector, .output = vector}));
    std::vector<std::thread> threads;
    for (auto& work : works) threads.emplace_back([&work] { work.wait(); });
    for (auto& thread : threads) thread.join();
    for (const auto& vector : data) EXPECT_THAT(vector, Each(2.0F));
  });
}

TEST(EngineTest, CallbacksRunOnceEachAndMayStartOperations) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> first(10, 1.0F), second(10, 1.0F);
    std::promise<Work> next;
    std::atomic<int> calls = 0;
    Work work = comm.start({.input = first, .output = first});
    work.on_done([&] {
      ++calls;
      next.set_value(comm.start({.input = second, .output = second}));
    });
    work.wait();
    Work chained = next.get_future().get();
    chained.wait();
    EXPECT_EQ(calls, 1);
    EXPECT_THAT(second, Each(2.0F));
    bool late = false;
    chained.on_done([&] { late = true; });
    EXPECT_TRUE(late) << "a callback on a finished operation runs at once";
  });
}

TEST(EngineTest, AnExpiredDeadlineNamesTheOperationAndWhoWasAwaited) {
  std::latch over(1);
  run_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) return over.wait();
    std::vector<float> data(10);
    try {
      comm.all_reduce(data, {.timeout = 50ms});
      FAIL() << "nobody answered, and yet it ended";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::timeout);
      EXPECT_THAT(error.what(), HasSubstr("all_reduce #"));
      EXPECT_THAT(error.what(), HasSubstr("for rank 1"));
      EXPECT_THAT(error.flight_record(), HasSubstr("all_reduce"));
    }
    EXPECT_THROW(comm.all_reduce(data), Error) << "a failed communicator stays failed";
    over.count_down();
  });
}

TEST(EngineTest, WaitForGivesUpWithoutHarm) {
  std::latch given_up(1);
  run_ranks(2, [&](Communicator& comm) {
    std::vector<float> data(10, 1.0F);
    if (comm.rank() == 1) given_up.wait();
    Work work = comm.start({.input = data, .output = data});
    if (comm.rank() == 0) {
      EXPECT_FALSE(work.wait_for(1ms));
      given_up.count_down();
    }
    work.wait();
    EXPECT_THAT(data, Each(2.0F));
  });
}

// More milliseconds than there are nanoseconds in a deadline.
TEST(EngineTest, WhatMayTakeForEverIsNotOverAtOnce) {
  static constexpr auto ever = std::chrono::milliseconds::max();
  auto options = support::ClusterOptions::patient();
  options.timeout = options.join_timeout = options.suspect_after = options.dead_after = ever;
  for (const std::string_view way : {"loopback", "tcp"})
    run_ranks(2,
              [](Communicator& comm) {
                std::vector<float> data(1000, 1.0F);
                comm.all_reduce(data);
                Work work = comm.start({.input = data, .output = data, .timeout = ever});
                EXPECT_TRUE(work.wait_for(std::chrono::nanoseconds::max()));
                std::vector<float> told(1);
                Work late = comm.rank() == 0 ? comm.start_recv(told, 1, 0, ever) : Work();
                if (comm.rank() == 1) std::this_thread::sleep_for(20ms);
                if (comm.rank() == 1) comm.send(std::span(data).first(1), 0);
                if (comm.rank() == 1) return;
                late.wait();
                EXPECT_EQ(told[0], 4.0F);
              },
              {.way = way, .communicator = options});
}

// With memory that peers see and without. What is nearly all of the numbers would be rounded up to nothing.
TEST(EngineTest, MemoryThatThereIsNotIsRefused) {
  for (const auto* way : {"shm", "tcp"})
    run_ranks(1,
              [](Communicator& comm) {
                for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX - 5000})
                  EXPECT_THAT(support::refusal([&] { comm.allocate(bytes); }, ErrorKind::config), HasSubstr("bytes"));
                EXPECT_EQ(comm.allocate(100)[99], std::byte{0});
              },
              {.way = way});
}

TEST(EngineTest, TrafficCountsWhatTheScheduleSays) {
  run_ranks(2, [](Communicator& comm) {
    const auto before = comm.traffic();
    std::vector<float> data(1000, 1.0F);
    comm.all_reduce(data, {.algorithm = "ring"});
    const auto after = comm.traffic();
    EXPECT_EQ(after.bytes_sent - before.bytes_sent, 4000U);
    EXPECT_EQ(after.bytes_received - before.bytes_received, 4000U);
    EXPECT_EQ(after.operations - before.operations, 1U);
  });
}

TEST(EngineTest, TrafficIsCountedByPeerToo) {
  run_ranks(4, [](Communicator& comm) {
    std::vector<float> data(1000, 1.0F);
    comm.all_reduce(data, {.algorithm = "ring"});
    const Rank next = (comm.rank() + 1) % 4;
    const Rank opposite = (comm.rank() + 2) % 4;
    EXPECT_EQ(comm.bytes_sent_to(next), 6000U);  // 2 (n - 1) / n of all
    EXPECT_EQ(comm.bytes_sent_to(opposite), 0U);
    Work sending = comm.start_send(data, opposite, 5);
    comm.recv(data, opposite, 5);
    sending.wait();
    EXPECT_EQ(comm.bytes_sent_to(opposite), 4000U);
    EXPECT_EQ(comm.traffic().bytes_sent, 10000U);
  });
}

}  // namespace
}  // namespace ranvier
