// Sums of gradients over "udp:loss=…" on real sockets of this host, where packets of partial messages are lost by a
// seed: whatever is lost, all ranks end with the same bits, what each is told it still owes makes up for it, and
// nothing but gradients is touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "ranvier/store.h"
#include "support/lossy_world.h"
#include "support/refusal.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using support::expect_same_everywhere;
using support::gradients;
using support::Loses;
using support::lost_share;
using support::on_ranks;

constexpr std::size_t large = support::sanitized ? 300'001 : 900'001;

void sum_exactly(Communicator& comm, std::vector<double>& values) { comm.all_reduce(std::span(values)); }

// On a busy machine a sender may pause so long that its receiver goes on without it: which ranks see together.
bool nothing_was_missing(Communicator& comm, std::uint64_t& before) {
  std::vector<double> missing(1, static_cast<double>(comm.losses().missing - before));
  before = comm.losses().missing;
  sum_exactly(comm, missing);
  return missing[0] == 0;
}
// Where other programs keep threads from the cores all the time, every sum may lack something; that is no mistake, and
// all ranks see it alike.
constexpr int most_attempts = 400;
bool is_too_busy(int attempts) {
  if (attempts < most_attempts) return false;
  std::fputs("this machine is too busy for a sum without losses: not checked\n", stderr);
  return true;
}

TEST(BoundedLoss, WithoutLossesItIsTheAverageAndNothingIsOwed) {
  for (const Rank world : {2, 3})
    on_ranks(world, [&](Communicator& comm) {
      const auto given = gradients(large, comm.rank());
      std::vector<float> result(large), lost(large);
      std::uint64_t missing = 0;
      int attempts = 0;
      do {
        std::ranges::fill(lost, 1.F);
        comm.run({.input = given, .output = result, .op = ReduceOp::average, .tolerates_loss = true, .lost = lost});
      } while (!nothing_was_missing(comm, missing) && ++attempts < most_attempts);
      if (is_too_busy(attempts)) return;
      std::vector<double> exact(given.begin(), given.end());
      sum_exactly(comm, exact);
      for (std::size_t i = 0; i < large; ++i) {
        ASSERT_NEAR(result[i], exact[i] / comm.world(), 1e-5);
        ASSERT_EQ(lost[i], 0);
      }
      expect_same_everywhere(comm, result);
      EXPECT_GT(comm.losses().due, 0U);
    });
}

// The sum of what was applied and of what all still owe is the sum of what was given.
TEST(BoundedLoss, WhatIsLostIsOwedAndAllRanksEndAlike) {
  const Loses loses(0.1);
  for (const Rank world : {2, 4})
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average})
      on_ranks(world, [&](Communicator& comm) {
        const auto given = gradients(large, comm.rank());
        std::vector<float> result(large), lost(large);
        comm.run({.input = given, .output = result, .op = op, .tolerates_loss = true, .lost = lost});
        expect_same_everywhere(comm, result);
        std::vector<double> difference(large), missing(1, static_cast<double>(comm.losses().missing));
        const double times = op == ReduceOp::sum ? 1 : comm.world();
        for (std::size_t i = 0; i < large; ++i)
          difference[i] = double{given[i]} - lost[i] - times * result[i] / comm.world();
        sum_exactly(comm, difference);
        sum_exactly(comm, missing);
        for (std::size_t i = 0; i < large; ++i) ASSERT_NEAR(difference[i], 0, 2e-4) << "value " << i;
        EXPECT_GT(missing[0], 0);
      });
}

TEST(BoundedLoss, RanksThatGiveTheSameGetItBackWhateverIsLost) {
  const Loses loses(0.3);
  on_ranks(3, [&](Communicator& comm) {
    const auto given = gradients(large, 0);
    auto values = given;
    comm.run({.input = values, .output = values, .op = ReduceOp::average, .tolerates_loss = true});
    for (std::size_t i = 0; i < large; ++i) ASSERT_NEAR(values[i], given[i], 1e-5);
  });
}

// Step by step what was lost comes later: after a step without losses nothing is owed.
TEST(BoundedLoss, ErrorFeedbackPaysEverythingInTheEnd) {
  lost_share = 0.1;
  on_ranks(2, [&](Communicator& comm) {
    const auto exchange = lossy_exchange(comm);
    std::vector<float> values(large);
    std::vector<double> owed(large);
    const auto take_step = [&](const std::vector<float>& given) {
      values = given;
      exchange->start(values)->wait();
      for (std::size_t i = 0; i < large; ++i) owed[i] += double{given[i]} - values[i];
    };
    for (unsigned step = 0; step < 4; ++step) take_step(gradients(large, comm.rank(), step));
    std::uint64_t missing = 0;
    EXPECT_FALSE(nothing_was_missing(comm, missing));
    comm.barrier();
    lost_share = 0;
    comm.barrier();
    int attempts = 0;
    do take_step(std::vector<float>(large));
    while (!nothing_was_missing(comm, missing) && ++attempts < most_attempts);
    if (is_too_busy(attempts)) return;
    sum_exactly(comm, owed);
    for (std::size_t i = 0; i < large; ++i) ASSERT_NEAR(owed[i], 0, 1e-3);
  });
}

TEST(BoundedLoss, EndsWhereNothingArrivesAtAll) {
  const Loses loses(1);
  on_ranks(2, [&](Communicator& comm) {
    auto values = gradients(200'000, comm.rank());
    std::vector<float> lost(values.size());
    comm.run({.input = values, .output = values, .op = ReduceOp::average, .tolerates_loss = true, .lost = lost});
    expect_same_everywhere(comm, values);
    EXPECT_EQ(comm.losses().missing, comm.losses().due);
    EXPECT_EQ(comm.losses().share(), 1);
  });
}

TEST(BoundedLoss, ManyAtOnceDoNotMixTheirMessages) {
  const Loses loses(0.05);
  on_ranks(2, [&](Communicator& comm) {
    std::vector<std::vector<float>> buckets;
    std::vector<Work> works;
    for (unsigned i = 0; i < 9; ++i) buckets.push_back(gradients(100'000 + i * 50'000, 0, i));
    for (unsigned i = 0; i < 9; ++i)
      works.push_back(comm.start({.input = buckets[i],
                                  .output = buckets[i],
                                  .op = ReduceOp::average,
                                  .priority = i % 3 == 0 ? 1 : 0,
                                  .tolerates_loss = true}));
    for (Work& work : works) work.wait();
    for (unsigned i = 0; i < 9; ++i) {
      const auto given = gradients(buckets[i].size(), 0, i);
      for (std::size_t k = 0; k < given.size(); ++k) ASSERT_NEAR(buckets[i][k], given[k], 1e-5) << "bucket " << i;
      expect_same_everywhere(comm, buckets[i]);
    }
  });
}

TEST(BoundedLoss, NothingElseIsTouched) {
  const Loses loses(1);
  on_ranks(2, [&](Communicator& comm) {
    auto parameters = gradients(large, 0);
    const auto before = parameters;
    comm.all_reduce(std::span(parameters), {.op = ReduceOp::average});
    EXPECT_EQ(parameters, before) << "nobody said that it tolerates loss";
    auto small = gradients(1000, 0), largest = gradients(large, 0);
    comm.run({.input = small, .output = small, .op = ReduceOp::average, .tolerates_loss = true});
    EXPECT_EQ(small, gradients(1000, 0));
    comm.run({.input = largest, .output = largest, .op = ReduceOp::max, .tolerates_loss = true});
    EXPECT_EQ(largest, before);
    std::vector<std::int64_t> integers(large, 7);
    comm.run({.input = integers, .output = integers, .tolerates_loss = true});
    EXPECT_EQ(integers, std::vector<std::int64_t>(large, 14));
    std::vector<float> lost(large, 1);
    comm.run({.input = before, .output = parameters, .op = ReduceOp::min, .tolerates_loss = true, .lost = lost});
    EXPECT_EQ(lost, std::vector<float>(large)) << "an exact one loses nothing";
    EXPECT_EQ(comm.losses().due, 0U);
  });
}

TEST(BoundedLoss, AnOverflowReachesEverybodyAndIsNotOwed) {
  const Loses loses(0.1);
  on_ranks(2, [&](Communicator& comm) {
    auto values = gradients(large, comm.rank());
    if (comm.rank() == 1) values[large / 2] = std::numeric_limits<float>::infinity();
    std::vector<float> lost(large);
    comm.run({.input = values, .output = values, .op = ReduceOp::average, .tolerates_loss = true, .lost = lost});
    EXPECT_FALSE(std::isfinite(values[large / 2]));
    EXPECT_TRUE(std::isfinite(values[0]));
    for (const float value : lost) ASSERT_TRUE(std::isfinite(value));
  });
}

// Of two ranks what each failed with: the text is empty of one that did not.
struct Problem {
  ErrorKind kind = ErrorKind::internal;
  std::string text;
};
std::array<Problem, 2> problems_of(const std::function<void(Communicator&)>& body) {
  const auto store = memory_store();
  std::array<Problem, 2> problems;
  std::vector<std::jthread> ranks;
  for (Rank rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        body(*Communicator::connect(*store, rank, 2, {.transport = "udp:loss=0.01", .timeout = 60s}));
      } catch (const Error& error) {
        problems[static_cast<std::size_t>(rank)] = {error.kind(), error.what()};
      }
    });
  ranks.clear();
  return problems;
}

// As one without loss would be: nothing has begun, and the next sum goes on.
TEST(BoundedLoss, ASumThatMakesNoSenseIsRefused) {
  on_ranks(2, [](Communicator& comm) {
    const auto given = gradients(large, comm.rank());
    std::vector<float> values = given;
    const auto complaint = [&](ConstTypedSpan input, TypedSpan output) {
      return support::refusal([&] { comm.run({.input = input, .output = output, .tolerates_loss = true}); });
    };
    const TypedSpan none(nullptr, large, DType::f32);
    EXPECT_NE(complaint(none, values).find("input has"), std::string::npos);
    EXPECT_NE(complaint(values, none).find("output has"), std::string::npos);
    const auto most = std::span(values).first(large - 100), moved = std::span(values).last(large - 100);
    EXPECT_NE(complaint(most, moved).find("overlap"), std::string::npos);
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {  // bounded, and exact
      const auto of_the_input = support::refusal(
          [&] { comm.run({.input = given, .output = values, .op = op, .tolerates_loss = true, .lost = values}); });
      EXPECT_NE(of_the_input.find("memory of its own"), std::string::npos);
    }
    EXPECT_EQ(values, given);
    comm.run({.input = values, .output = values, .tolerates_loss = true});
    expect_same_everywhere(comm, values);
  });
}

TEST(BoundedLoss, RanksThatDisagreeAreTold) {
  const auto problems = problems_of([](Communicator& comm) {
    auto values = gradients(large + static_cast<std::size_t>(comm.rank()) * 100'000, comm.rank());
    comm.run({.input = values, .output = values, .op = ReduceOp::average, .tolerates_loss = true});
  });
  for (const Problem& problem : problems) EXPECT_NE(problem.text, "");
  const std::string both = problems[0].text + problems[1].text;
  EXPECT_NE(both.find("same sizes and types"), std::string::npos) << both;
}

// As ranks of which one waits for its sum at once and the other later: neither understands what the other one sends.
TEST(BoundedLoss, ARankThatSumsExactlyIsNamed) {
  const auto problems = problems_of([](Communicator& comm) {
    auto values = gradients(large, comm.rank());
    comm.run({.input = values, .output = values, .op = ReduceOp::average, .tolerates_loss = comm.rank() == 0});
  });
  for (const auto& [kind, text] : problems) {
    EXPECT_EQ(kind, ErrorKind::mismatch) << text;
    EXPECT_NE(text.find("by bounded loss"), std::string::npos) << text;
  }
}

TEST(BoundedLoss, ARankThatGivesUpEndsTheOthersWait) {
  const auto problems = problems_of([](Communicator& comm) {
    auto values = gradients(large, comm.rank());
    if (comm.rank() == 1) return comm.abort("it has enough");
    comm.run({.input = values, .output = values, .op = ReduceOp::average, .tolerates_loss = true});
  });
  EXPECT_NE(problems[0].text, "");
}

TEST(BoundedLoss, AHandleMayOutliveItsCommunicator) {
  std::mutex mutex;
  std::vector<Work> works;
  std::vector<std::vector<float>> values(2, gradients(large, 0));
  on_ranks(2, [&](Communicator& comm) {
    auto& own = values[static_cast<std::size_t>(comm.rank())];
    Work work = comm.start({.input = own, .output = own, .op = ReduceOp::average, .tolerates_loss = true});
    work.wait();
    const std::lock_guard lock(mutex);
    works.push_back(std::move(work));
  });
  for (const Work& work : works) EXPECT_TRUE(work.done());
}

TEST(BoundedLoss, ASpecThatMakesNoSenseIsRefused) {
  EXPECT_EQ(parse_transport("udp:loss=0.01").loss, 0.01);
  EXPECT_EQ(parse_transport("udp:loss=0.01").between, "udp");
  EXPECT_EQ(parse_transport("udp").loss, 0);
  EXPECT_EQ(parse_transport("udp:loss=0.01").resync, 0U);
  EXPECT_EQ(parse_transport("udp:loss=0.01,resync=10").resync, 10U);
  for (const auto* spec : {"udp:loss=0", "udp:loss=0.9", "udp:loss=-1", "udp:loss=many", "udp:loss=nan", "udp:0.01",
                           "udp:", "udp:los=0.01", "udp:loss=0.01,resync=0", "udp:loss=0.01,resync=-3",
                           "udp:loss=0.01,resync=often", "udp:resync=10", "shm+udp:loss=0.01", "tcp:loss=0.01"})
    EXPECT_THROW(parse_transport(spec), Error) << spec;
}

}  // namespace
}  // namespace ranvier
