// Replicas over "udp:loss=…": what groups lose is counted, and with resync=K replicas part between two realignments.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ranvier/synchronizer.h"
#include "support/lossy_world.h"

namespace ranvier {
namespace {

using support::gradients;
using support::is_same_everywhere;
using support::Loses;
using support::on_ranks;

constexpr std::size_t size = 200'000;
constexpr float rate = 0.1F;

void take_step(Synchronizer& sync, Rank rank, unsigned step, std::vector<float>& parameters) {
  auto gradient = gradients(size, rank, step);
  if (sync.begin_step(step)) sync.gradients()->start(gradient)->wait();
  for (std::size_t i = 0; i < size; ++i) parameters[i] -= rate * gradient[i];
  sync.end_step(step + 1, rate, parameters);
}

TEST(Losses, OfGroupsAreCountedLikeThoseOfTheWorld) {
  const Loses loses(0.3);
  for (const std::string sync : {"bsp", "node:4"})
    on_ranks(4, [&](Communicator& comm) {
      Synchronizer synchronizer(comm, {.sync = sync, .place = "node=2"});
      std::vector<float> parameters(size);
      synchronizer.begin(parameters);
      for (unsigned step = 0; step < 2; ++step) take_step(synchronizer, comm.rank(), step, parameters);
      const LossCounts losses = synchronizer.traffic().losses;
      EXPECT_GT(losses.due, 0U) << sync;
      std::vector<std::int64_t> missing{static_cast<std::int64_t>(losses.missing)};
      comm.all_reduce(std::span(missing));
      EXPECT_GT(missing[0], 0) << sync;
    });
}

TEST(Losses, PartReplicasBetweenTwoRealignmentsAndNeverBehindOne) {
  constexpr std::size_t period = 4;
  const Loses loses(0.3, 3);
  on_ranks(
      2,
      [&](Communicator& comm) {
        Synchronizer sync(comm, {.sync = "bsp", .samples = comm.rank() == 0 ? 3.0 : 1.0});
        EXPECT_TRUE(sync.parts_replicas());
        std::vector<float> parameters(size);
        sync.begin(parameters);
        EXPECT_TRUE(sync.agreed());
        int times_apart = 0;
        for (unsigned step = 0; step < 2 * period + 2; ++step) {
          take_step(sync, comm.rank(), step, parameters);
          const bool is_realigned = (step + 1) % period == 0;
          EXPECT_EQ(sync.agreed(), is_realigned) << step;
          const bool is_same = is_same_everywhere(comm, parameters);
          times_apart += is_same ? 0 : 1;
          if (is_realigned) {
            EXPECT_TRUE(is_same) << step;
          }
        }
        EXPECT_GT(times_apart, 0);
        auto mean = parameters;
        sync.mean(mean);
        EXPECT_TRUE(sync.end(parameters));
        EXPECT_TRUE(sync.agreed());
        EXPECT_TRUE(is_same_everywhere(comm, parameters));
        EXPECT_TRUE(mean == parameters) << "however many samples each has";
      },
      "udp:loss=0.2,resync=4");
}

// Averages of parameters would hand on what parts the ranks of a node.
TEST(Losses, PartNoReplicasThatAverageParameters) {
  const Loses loses(0.3, 3);
  on_ranks(
      4,
      [&](Communicator& comm) {
        Synchronizer sync(comm, {.sync = "node:4", .place = "node=2"});
        std::vector<float> parameters(size);
        sync.begin(parameters);
        for (unsigned step = 0; step < 4; ++step) {
          take_step(sync, comm.rank(), step, parameters);
          const auto all = support::everybodys(comm, parameters);
          const auto of = [&](Rank rank) { return all.begin() + rank * static_cast<std::ptrdiff_t>(size); };
          EXPECT_TRUE(std::equal(of(0), of(1), of(1))) << "after step " << step;
          EXPECT_TRUE(std::equal(of(2), of(3), of(3))) << "after step " << step;
        }
        EXPECT_TRUE(is_same_everywhere(comm, parameters));
      },
      "udp:loss=0.2,resync=3");
}

}  // namespace
}  // namespace ranvier
