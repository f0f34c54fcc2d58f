// Operations under way: started and waited for in any order, more of them than lanes, from several threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>

#include "conformance/collective_case.h"
#include "conformance/errors.h"
#include "conformance/worlds.h"
#include "support/sanitized.h"

namespace ranvier::conformance {
namespace {

using namespace std::chrono_literals;

class Operations : public Ways {};

// One of everything, sizes and algorithms mixed.
std::vector<Case> mixed_cases(std::size_t how_many, Rank world) {
  constexpr std::array collectives{Collective::all_reduce,     Collective::all_gather, Collective::broadcast,
                                   Collective::reduce_scatter, Collective::all_to_all, Collective::reduce,
                                   Collective::gather,         Collective::scatter};
  constexpr std::array<std::size_t, 5> counts{1, 5000, 0, 33, 700};
  std::vector<Case> cases;
  for (std::size_t i = 0; i < how_many; ++i) {
    const Collective collective = collectives[i * 3 % collectives.size()];
    const auto names = algorithms_for(collective, world);
    cases.push_back({.collective = collective,
                     .algorithm = names[i % names.size()],
                     .count = counts[i % counts.size()],
                     .dtype = all_dtypes[i % all_dtypes.size()],
                     .root = static_cast<Rank>(i % static_cast<std::size_t>(world)),
                     .salt = i});
  }
  return cases;
}

TEST_P(Operations, more_than_there_are_lanes_finish_in_whatever_order_they_are_waited_for) {
  for (const Rank world : {2, 3, 6})
    run(world, [](Communicator& comm) {
      std::mt19937 generator(static_cast<unsigned>(comm.rank()));  // every rank waits in an order of its own
      for (const std::size_t in_flight : {std::size_t{2}, std::size_t{collective_lanes}, std::size_t{19}}) {
        std::deque<CaseRun> runs;
        std::vector<Work> works;
        for (const Case& c : mixed_cases(in_flight, comm.world())) {
          runs.emplace_back(c, comm);
          works.push_back(comm.start(runs.back().request()));
        }
        std::vector<std::size_t> order(in_flight);
        std::iota(order.begin(), order.end(), 0);
        std::shuffle(order.begin(), order.end(), generator);
        for (const std::size_t i : order) {
          works[i].wait();
          EXPECT_TRUE(works[i].done());
          EXPECT_EQ(works[i].error(), nullptr);
          EXPECT_EQ(works[i].source(), -1);
          runs[i].check();
        }
      }
    });
}

TEST_P(Operations, blocking_ones_may_come_between_started_ones) {
  run(3, [](Communicator& comm) {
    std::deque<CaseRun> runs;
    std::vector<Work> works;
    for (const Case& c : mixed_cases(30, comm.world())) {
      runs.emplace_back(c, comm);
      if (c.salt % 4 == 3)
        comm.run(runs.back().request());
      else
        works.push_back(comm.start(runs.back().request()));
    }
    for (Work& work : works) work.wait();
    for (const CaseRun& run : runs) run.check();
  });
}

TEST_P(Operations, an_urgent_one_waits_for_none_of_another_class) {
  auto cluster = options();
  cluster.communicator.background_progress = false;  // all begins when the urgent one is waited for
  cluster.communicator.algorithm = "direct";
  const std::size_t count =
      simulated() || support::sanitized ? 200'000 : 1'000'000;  // slices, where the urgent one needs one
  const auto body = [count](Communicator& comm) {
    for (const auto& [before, priority, passes] : std::vector<std::tuple<int, int, bool>>{
             {0, 0, false}, {0, 1, true}, {1, 1, false}, {1, 7, true}, {2, 3, true}, {3, 7, false}}) {
      // Two on each lane, so that the next ordinary one has two to wait for.
      std::vector<std::vector<float>> large(std::size_t{2} * ordinary_lanes, std::vector<float>(count, 1));
      std::vector<Work> works;
      for (auto& data : large)
        works.push_back(
            comm.start({.collective = Collective::all_reduce, .input = data, .output = data, .priority = before}));
      std::vector<float> small(9, 1);
      comm.start({.collective = Collective::all_reduce,
                  .input = small,
                  .output = small,
                  .algorithm = "one_round",
                  .priority = priority})
          .wait();
      if (passes)
        EXPECT_TRUE(std::ranges::any_of(works, [](const Work& work) { return !work.done(); }));
      else
        EXPECT_TRUE(works[0].done() && works[ordinary_lanes].done());
      for (Work& work : works) work.wait();
      EXPECT_EQ(small, std::vector<float>(9, static_cast<float>(comm.world())));
      for (const auto& data : large) EXPECT_EQ(data, std::vector<float>(count, static_cast<float>(comm.world())));
    }
  };
  for (const Rank world : {2, 3}) support::run_ranks(world, body, cluster);
}

TEST_P(Operations, urgent_ones_keep_their_order_among_themselves) {
  run(3, [](Communicator& comm) {
    std::deque<CaseRun> runs;
    std::vector<Work> works;
    for (const Case& c : mixed_cases(30, comm.world())) {
      runs.emplace_back(c, comm);
      Request request = runs.back().request();
      request.priority = static_cast<int>(c.salt % 4) - 1;
      if (c.salt % 5 == 0)
        comm.run(request);
      else
        works.push_back(comm.start(request));
    }
    for (Work& work : works) work.wait();
    for (const CaseRun& run : runs) run.check();
  });
}

TEST_P(Operations, dropping_the_handle_does_not_stop_one) {
  run(3, [](Communicator& comm) {
    std::deque<CaseRun> runs;
    for (const Case& c : mixed_cases(6, comm.world())) {
      runs.emplace_back(c, comm);
      comm.start(runs.back().request());
    }
    // Later collectives of the same lanes end after them.
    for (int i = 0; i < collective_lanes; ++i) comm.barrier();
    for (const CaseRun& run : runs) run.check();
  });
}

TEST_P(Operations, a_bounded_wait_ends_in_time_and_can_be_taken_up_again) {
  run(2, [](Communicator& comm) {
    std::vector<float> data(100, 1);
    std::vector<float> token(1);
    if (comm.rank() == 1) {
      comm.recv(token, 0);
      comm.all_reduce(data);
    } else {
      Work work = comm.start({.collective = Collective::all_reduce, .input = data, .output = data});
      EXPECT_FALSE(work.wait_for(1ms));
      EXPECT_FALSE(work.done());
      comm.send(token, 1);
      EXPECT_TRUE(work.wait_for(30s));
    }
    EXPECT_EQ(data, std::vector<float>(100, 2));
  });
}

TEST_P(Operations, those_who_asked_are_called_once_when_one_is_done_or_at_once_if_it_was) {
  run(3, [](Communicator& comm) {
    std::vector<float> data(1000, 1);
    std::atomic<int> called = 0;
    Work work = comm.start({.collective = Collective::all_reduce, .input = data, .output = data});
    work.on_done([&] { ++called; });
    work.on_done([&] { ++called; });
    work.wait();
    // The thread that finishes it calls after it has told those who wait.
    for (int i = 0; i < 30'000 && called < 2; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(called, 2);
    work.on_done([&] { ++called; });
    EXPECT_EQ(called, 3);
  });
}

TEST_P(Operations, one_that_nobody_waits_for_goes_on_in_the_background) {
  if (simulated()) GTEST_SKIP() << "a background thread is not part of the simulation";
  run(3, [](Communicator& comm) {
    std::vector<float> data(1000, 1);
    const Work work = comm.start({.collective = Collective::all_reduce, .input = data, .output = data});
    for (int i = 0; i < 30'000 && !work.done(); ++i) std::this_thread::sleep_for(1ms);
    ASSERT_TRUE(work.done());
    EXPECT_EQ(data, std::vector<float>(1000, 3));
  });
}

TEST_P(Operations, several_threads_of_a_rank_may_communicate_at_once) {
  if (simulated()) GTEST_SKIP() << "ranks of a simulation have one thread";
  run(3, [](Communicator& comm) {
    const Rank next = (comm.rank() + 1) % comm.world();
    const Rank previous = (comm.rank() + comm.world() - 1) % comm.world();
    const auto talk = [&](std::uint64_t tag) {
      for (std::int64_t i = 0; i < 100; ++i) {
        std::vector<std::int64_t> mine(50, std::int64_t{1000} * comm.rank() + i);
        std::vector<std::int64_t> theirs(50);
        Work sending = comm.start_send(mine, next, tag);
        comm.recv(theirs, previous, tag);
        sending.wait();
        EXPECT_EQ(theirs, std::vector<std::int64_t>(50, std::int64_t{1000} * previous + i));
      }
    };
    const std::jthread one([&] { talk(1); });
    const std::jthread two([&] { talk(2); });
    for (std::size_t salt = 0; salt < 200; ++salt) run_case(comm, {.count = 1 + salt * 7, .salt = salt});
  });
}

// What the last to send has handed over must leave without it: it may compute for long, or meet others.
TEST_P(Operations, end_everywhere_though_who_is_done_does_something_else) {
  if (simulated()) GTEST_SKIP() << "whoever sleeps in the simulation stops its clock";
  std::atomic<int> done = 0;
  run(2, [&](Communicator& comm) {
    std::vector<float> values(100'000, 1.0F);
    for (int i = 1; i <= 5; ++i) {
      comm.all_reduce(values, {.op = ReduceOp::average});
      ++done;
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (done < 2 * i && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ASSERT_GE(done, 2 * i);
    }
  });
}

TEST_P(Operations, closing_a_communicator_fails_what_is_still_under_way) {
  std::vector<float> never(1);  // outlives the communicator
  Work work;
  std::atomic<bool> ended = false;
  run(2, [&](Communicator& comm) {
    if (comm.rank() == 0) {
      work = comm.start_recv(never, 1, 99);  // which nobody sends
      work.on_done([&] { ended = true; });
    }
    comm.barrier();
    // Rank 1 stays until then: its going would be a reason of its own.
    for (int i = 0; i < 30'000 && comm.rank() == 1 && !simulated() && !ended; ++i) std::this_thread::sleep_for(1ms);
  });
  ASSERT_TRUE(work.done());
  EXPECT_THAT(error_of([&] { std::rethrow_exception(work.error()); }), throws(ErrorKind::aborted, "closed"));
}

INSTANTIATE_TEST_SUITE_P(, Operations, testing::ValuesIn(support::all_ways()), name_of_way);

}  // namespace
}  // namespace ranvier::conformance
