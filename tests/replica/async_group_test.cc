// Groups and servers across a change: of groups, of one run to the next, and where there is nobody else.
#include "ranvier/async_group.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

#include "ranvier/peer_average.h"
#include "replica/team_pool.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using support::run_ranks;
using Values = std::vector<float>;

// By their own, each would begin its next step somewhere else, and what one pushes would not be what others have taken.
void meet_in_one_group(Answer answer) {
  run_ranks(3,
            [answer](Communicator& comm) {
              Values parameters(10, 0), velocity(10, 0);
              ParameterServer server(comm, {.damping = ServerRule::Damping::share}, parameters, 0);
              const auto pool = std::make_shared<replica::TeamPool>(comm);
              const AsyncGroupOptions options{.momentum = {0.5, velocity}, .pool = pool, .answer = answer};
              const auto step = [&](AsyncGroup& group, float gradient) {
                ASSERT_TRUE(group.begin(1000).goes_on);
                Values own(10, gradient);
                group.exchange(own, 0.25, parameters);
              };
              {
                AsyncGroup apart(comm, server, {0, 1, 1}, {2, 1, 1}, options);
                step(apart, static_cast<float>(comm.rank() + 1));
                apart.settle();
                EXPECT_EQ(velocity, Values(10, comm.rank() == 0 ? 1.0F : 2.5F));
              }
              comm.barrier();
              server.pull(parameters);
              comm.barrier();
              AsyncGroup together(comm, server, {0, 0, 0}, {2, 1, 1}, options);
              EXPECT_EQ(velocity, Values(10, (2 * 1.0F + 2.5F + 2.5F) / 4));
              step(together, 0);
              // Of two groups each looks ahead to the other's next push, or two; one by itself to nothing.
              const float ahead = answer == Answer::now ? 1 + 0.5F : 1 + 0.5F + 0.25F;
              EXPECT_EQ(parameters, Values(10, -0.25F * ahead * (0.5F * 1.0F + 0.5F * 2.5F) - 0.25F * 0.875F));
              together.settle();
              comm.barrier();
              server.leave();
            },
            {.way = "shm"});
}

TEST(AsyncGroup, MembersOfSeveralGroupsGoOnWithTheMeanOfTheirMomenta) {
  for (const Answer answer : {Answer::now, Answer::next_step}) meet_in_one_group(answer);
}

// By a rate and a momentum whose products are exact, so that it does not matter in which instructions they are taken.
TEST(AsyncGroup, OneWorkerTakesPlainStepsBitByBit) {
  using Damping = ServerRule::Damping;
  for (const ServerRule& rule : {ServerRule{.damping = Damping::staleness}, ServerRule{.bound = 2},
                                 ServerRule{.damping = Damping::share}, ServerRule{.damping = Damping::excess}})
    for (const float momentum : {0.0F, 0.5F})
      for (const Answer answer : {Answer::now, Answer::next_step})
        run_ranks(1, [&](Communicator& comm) {
          Values x(10, 0.1F), velocity(10, 0);
          ParameterServer server(comm, rule, x, 0);
          AsyncGroup group(comm, server, {0}, {4}, {.momentum = {momentum, velocity}, .answer = answer});
          float expected = 0.1F, u = 0;
          for (std::uint64_t step = 0; step < 20; ++step) {
            const auto part = group.begin(100);
            ASSERT_EQ((std::array{part.first, part.count}), (std::array<std::uint64_t, 2>{4 * step, 4}));
            Values gradient(10, x[0] - 1);
            group.exchange(gradient, 0.25, x);
            u = momentum * u + (expected - 1);
            expected -= 0.25F * u;
            ASSERT_EQ(x, Values(10, expected)) << step;
          }
          group.settle();
          server.leave();
        });
}

// A run that is resumed begins with as many samples behind it as had been used.
TEST(ParameterServer, ARunInTwoPartsUsesEachSampleOnce) {
  std::array<std::atomic<int>, 100> by_servers{}, by_peers{};
  run_ranks(3,
            [&](Communicator& comm) {
              Values x(10, 0), gradient(10, 0);
              std::uint64_t done = 0;
              for (const std::uint64_t stop : {37U, 100U}) {
                ParameterServer server(comm, {.bound = 1}, x, done);
                for (;;) {
                  const auto given = server.begin(stop, 4);
                  if (given.count == 0) break;
                  for (std::uint64_t n = given.first; n < given.first + given.count; ++n) ++by_servers.at(n);
                  server.exchange(gradient, {.rate = 0.25, .share = 1, .samples = given.count}, x);
                }
                comm.barrier();
                server.leave();
                comm.barrier();
                PeerAverage peers(comm, x, done, 1);
                for (;;) {
                  const auto given = peers.begin(stop, 4);
                  if (given.count == 0) break;
                  for (std::uint64_t n = given.first; n < given.first + given.count; ++n) ++by_peers.at(n);
                  peers.update(x, given.count, [] {});
                }
                comm.barrier();
                peers.leave();
                comm.barrier();
                done = stop;
              }
            },
            {.way = "shm"});
  for (const auto& times : by_servers) EXPECT_EQ(times, 1);
  for (const auto& times : by_peers) EXPECT_EQ(times, 1);
}

}  // namespace
}  // namespace ranvier
