// "udp:loss=…,resync=K": ranks may differ for a while, by no more than they are allowed to, nobody waits for one that
// is late, and realigned they have the same bits.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/store.h"
#include "support/lossy_world.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using support::gradients;
using support::is_same_everywhere;
using support::Loses;
using support::on_ranks;

constexpr std::size_t length = 300'001;
constexpr int again_and_again = 3;  // so often averages are lost: longer than anybody waits

void average_apart(Communicator& comm, const std::vector<float>& given, std::vector<float>& result,
                   std::span<float> lost = {}) {
  comm.run({.input = given,
            .output = result,
            .op = ReduceOp::average,
            .tolerates_loss = true,
            .may_differ = true,
            .lost = lost});
}

double square_of_difference(const float* a, const float* b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum;
}

TEST(Resync, RanksPartNoMoreThanTheyMayAndAreRealigned) {
  constexpr unsigned steps = 16;
  constexpr double loss = 0.05;
  const Loses loses(0.5, again_and_again);
  on_ranks(
      2,
      [&](Communicator& comm) {
        EXPECT_EQ(comm.resync(), steps);
        std::vector<float> parameters(length);
        double apart = 0, given_apart = 0;
        for (unsigned step = 0; step < steps; ++step) {
          const auto given = gradients(length, comm.rank(), step);
          std::vector<float> result(length);
          average_apart(comm, given, result);
          for (std::size_t i = 0; i < length; ++i) parameters[i] -= result[i];
          const auto all = support::everybodys(comm, result), inputs = support::everybodys(comm, given);
          apart += square_of_difference(all.data(), all.data() + length, length);
          given_apart += square_of_difference(inputs.data(), inputs.data() + length, length);
        }
        EXPECT_GT(apart, 0);
        EXPECT_FALSE(is_same_everywhere(comm, parameters));
        // What a rank takes in place of an average is no further from it than the two ranks' values are apart, and each
        // lacks at most this share of the other's half of the vector.
        EXPECT_LE(apart, 1.2 * loss * given_apart);
        comm.realign(parameters);
        EXPECT_TRUE(is_same_everywhere(comm, parameters));
      },
      "udp:loss=0.05,resync=16");
}

TEST(Resync, RanksThatGiveTheSameGetItBackWhateverIsLost) {
  const Loses loses(0.3, again_and_again);
  on_ranks(
      3,
      [&](Communicator& comm) {
        const auto given = gradients(length, 0);
        for (int step = 0; step < 4; ++step) {
          std::vector<float> values(length);
          average_apart(comm, given, values);
          for (std::size_t i = 0; i < length; ++i) ASSERT_NEAR(values[i], given[i], 1e-5);
        }
      },
      "udp:loss=0.2,resync=8");
}

// Rank 1 does not begin before rank 0 has ended: who waits for it waits for ever.
TEST(Resync, NobodyWaitsForARankThatIsLate) {
  std::atomic<bool> rank_0_has_ended = false;
  on_ranks(
      2,
      [&](Communicator& comm) {
        const auto given = gradients(length, comm.rank());
        std::vector<float> result(length), lost(length);
        for (int step = 0; step < 6; ++step) average_apart(comm, given, result);
        comm.realign(result);
        const auto limit = std::chrono::steady_clock::now() + 60s;
        while (comm.rank() == 1 && !rank_0_has_ended && std::chrono::steady_clock::now() < limit)
          std::this_thread::sleep_for(1ms);
        average_apart(comm, given, result, lost);
        if (comm.rank() == 0) rank_0_has_ended = true;
        EXPECT_TRUE(rank_0_has_ended) << "it waited";
        // Rank 0 has taken its own for all. Of its half of the vector rank 1 hears that it came too late, or it does
        // not hear in time and takes its own too: what it gave is in the result or owed.
        const std::size_t certain = comm.rank() == 0 ? length : length / 3;
        for (std::size_t i = 0; i < certain && !HasFailure(); ++i)
          EXPECT_NEAR(result[i] + (comm.rank() == 0 ? 0 : lost[i]), given[i], 1e-4) << i;
        comm.realign(result);
        EXPECT_TRUE(is_same_everywhere(comm, result));
      },
      "udp:loss=0.5,resync=8");
}

// Of two ranks what each failed with.
std::array<std::string, 2> problems_of(const std::array<std::string, 2>& transports,
                                       const std::function<void(Communicator&)>& body) {
  const auto store = memory_store();
  std::array<std::string, 2> problems;
  std::vector<std::jthread> ranks;
  for (std::size_t rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      try {
        body(*Communicator::connect(*store, static_cast<Rank>(rank), 2,
                                    {.transport = transports[rank], .measure = false, .timeout = 60s}));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::mismatch);
        problems[rank] = error.what();
      }
    });
  ranks.clear();
  return problems;
}

TEST(Resync, RanksThatWantItUnlikeAreToldWhenTheyMeet) {
  for (const char* other : {"udp:loss=0.01", "udp:loss=0.01,resync=9", "udp:loss=0.02,resync=8", "udp"})
    for (const auto& problem : problems_of({"udp:loss=0.01,resync=8", other}, [](Communicator&) {}))
      EXPECT_NE(problem.find("give all ranks the same"), std::string::npos) << other << ": " << problem;
}

TEST(Resync, ARankThatSumsExactlyIsFoundOut) {
  const auto problems = problems_of({"udp:loss=0.01,resync=8", "udp:loss=0.01,resync=8"}, [](Communicator& comm) {
    auto values = gradients(length, comm.rank());
    comm.run({.input = values,
              .output = values,
              .op = ReduceOp::average,
              .tolerates_loss = comm.rank() == 0,
              .may_differ = comm.rank() == 0});
    comm.realign(values);
  });
  for (const auto& problem : problems) EXPECT_NE(problem, "");
}

}  // namespace
}  // namespace ranvier
