// By how many samples each rank counts in averages of parameters, and what is no such number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/synchronizer.h"
#include "support/cluster.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using support::run_ranks;
using testing::HasSubstr;

constexpr double learning_rate = 0.05;

TEST(Synchronizer, WhoeverHasNoSamplesMovesNobody) {
  run_ranks(4,
            [](Communicator& comm) {
              Synchronizer sync(comm, {.sync = "hierarchy:node=2,world=4", .place = "node=2"});
              sync.set_samples(std::array{3.0, 1.0, 0.0, 0.0});
              std::vector<float> x{0};
              sync.begin(x);
              for (std::uint64_t step = 1; step <= 4; ++step) {
                EXPECT_FALSE(sync.begin_step(step - 1));
                if (comm.rank() < 2) x[0] += comm.rank() == 0 ? 1.0F : 5.0F;
                sync.end_step(step, learning_rate, x);
                if (step == 2) {
                  EXPECT_FLOAT_EQ(x[0], comm.rank() < 2 ? 4 : 0) << "a node without samples has nothing to average";
                }
              }
              EXPECT_FLOAT_EQ(x[0], 8);
            },
            {.way = "shm"});
}

TEST(Synchronizer, TheMeanOfAllReplicasIsTheirsByWeight) {
  run_ranks(2,
            [](Communicator& comm) {
              Synchronizer sync(comm, {.sync = "local:8", .samples = comm.rank() == 0 ? 3.0 : 1.0});
              std::vector<float> x{0};
              sync.begin(x);
              x[0] = comm.rank() == 0 ? 1.0F : 5.0F;
              sync.end_step(1, learning_rate, x);
              EXPECT_FALSE(sync.agreed());
              sync.mean(x);
              EXPECT_FLOAT_EQ(x[0], 2);
            },
            {.way = "shm"});
}

// The part has left with the last step, and replicas keep what they have made of it: nobody has used a sample since.
TEST(Synchronizer, TheLastMeanIsByWeightThoughAPartHasJustLeft) {
  run_ranks(2,
            [](Communicator& comm) {
              Synchronizer sync(comm, {.sync = "diloco:2,fragments=1,delay=1,merge=1,rate=1,momentum=0",
                                       .samples = comm.rank() == 0 ? 3.0 : 1.0});
              std::vector<float> x{0};
              sync.begin(x);
              for (std::uint64_t step = 1; step <= 2; ++step) {
                sync.begin_step(step - 1);
                x[0] += comm.rank() == 0 ? 0.5F : 2.5F;
                sync.end_step(step, learning_rate, x);
              }
              sync.end(x);
              EXPECT_FLOAT_EQ(x[0], 2);
            },
            {.way = "shm"});
}

// A part is sent behind steps 3 and 6 and taken up behind the next one, in the place of what replicas have made of it
// meanwhile: they come from what the one of step 3 was at step 4, by the samples of steps 5 and 6.
TEST(Synchronizer, APartThatWasSentWeighsByStepsThatCountInIt) {
  static constexpr std::array<std::array<double, 2>, 7> samples{
      {{8, 1}, {8, 1}, {8, 1}, {8, 1}, {1, 3}, {3, 1}, {9, 1}}};
  constexpr float at_first = 3.0F * (8 * 1 + 1 * 5) / 9, since = 2.0F * (1 + 5) / 2;
  for (const std::uint64_t steps : {6U, 7U})
    run_ranks(2,
              [&](Communicator& comm) {
                Synchronizer sync(comm, {.sync = "diloco:3,delay=1,rate=1,momentum=0"});
                std::vector<float> x{0};
                sync.begin(x);
                for (std::uint64_t step = 1; step <= steps; ++step) {
                  sync.set_samples(samples[step - 1]);
                  sync.begin_step(step - 1);
                  x[0] += comm.rank() == 0 ? 1.0F : 5.0F;
                  sync.end_step(step, learning_rate, x);
                }
                auto foretold = x;
                sync.mean(foretold);
                EXPECT_FLOAT_EQ(foretold[0], at_first + since) << "in step " << steps;
                sync.end(x);
                EXPECT_FLOAT_EQ(x[0], at_first + since) << "behind step " << steps;
              },
              {.way = "shm"});
}

TEST(Synchronizer, RefusesSamplesThatAreNoWeights) {
  run_ranks(2, [](Communicator& comm) {
    const auto make = [&](const std::string& sync, double samples) {
      Synchronizer made(comm, {.sync = sync, .samples = samples});
    };
    const auto refusal = [&](const std::string& sync, double samples) {
      return support::refusal([&] { make(sync, samples); });
    };
    for (const double bad : {0.0, -3.0, std::nan(""), std::numeric_limits<double>::infinity()})
      EXPECT_THAT(refusal("local:4", comm.rank() == 1 ? bad : 2), HasSubstr("rank 1 has"));
    EXPECT_THAT(refusal("gossip", comm.rank() + 1), HasSubstr("give all as many"));
    EXPECT_NO_THROW(make("local:4", comm.rank() + 1));
    EXPECT_NO_THROW(make("async:servers=1", comm.rank() == 1 ? 0 : 2)) << "who only serves takes none";
    Synchronizer gossip(comm, {.sync = "gossip", .samples = 3});
    EXPECT_THROW(gossip.set_samples(comm.rank() + 1), Error);
    EXPECT_THROW(gossip.set_samples(std::array{1.0, 2.0}), Error);
    Synchronizer local(comm, {.sync = "local:4"});
    for (const auto& bad : {std::vector{1.0}, {0.0, 0.0}, {1.0, -1.0}, {std::nan(""), 1.0}})
      EXPECT_THROW(local.set_samples(bad), Error);
  });
}

}  // namespace
}  // namespace ranvier
