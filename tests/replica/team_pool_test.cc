// Groups that are formed beside what goes on: by messages alone, each once, and nothing waits for ever where a rank is
// lost meanwhile.
#include "replica/team_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/synchronizer.h"
#include "support/cluster.h"

namespace ranvier::replica {
namespace {

using namespace std::chrono_literals;
using support::run_ranks;

float sum_over(Team& team, float own) {
  std::vector<float> value{own};
  team.comm().all_reduce(value);
  return value[0];
}

TEST(TeamPool, FormsEachGroupOnceAndCountsWhatAllHaveSent) {
  run_ranks(4,
            [](Communicator& comm) {
              TeamPool pool(comm);
              const Groups pairs{0, 0, 1, 1};
              Team* const team = pool.team(pairs);
              ASSERT_NE(team, nullptr);
              EXPECT_EQ(pool.team(pairs), team);
              EXPECT_EQ(sum_over(*team, static_cast<float>(comm.rank())), comm.rank() < 2 ? 1.0F : 5.0F);
              EXPECT_EQ(pool.team({-1, 3, 3, 3}) == nullptr, comm.rank() == 0);
              const auto before = pool.bytes({0, 0, 1, 1});
              for (int times = 0; times < 10; ++times) sum_over(*team, 1);
              const auto after = pool.bytes({0, 0, 1, 1});
              EXPECT_GT(after.first, before.first);
              EXPECT_EQ(after.second, before.second);
              comm.barrier();
              pool.keep_only({0, 0, 0, 0});
              EXPECT_GE(pool.bytes({0, 0, 1, 1}).first, after.first) << "what has gone stays counted";
              EXPECT_EQ(sum_over(*pool.team(pairs), 1), 2.0F);
              comm.barrier();
            },
            {.way = "tcp"});
}

// Collectives of everybody go on, more than once between two looks.
TEST(TeamPool, FormsGroupsWhileCollectivesGoOn) {
  for (const std::string_view way : {"shm", "tcp", "tls"})
    run_ranks(4,
              [](Communicator& comm) {
                TeamPool pool(comm);
                const std::vector<Groups> wanted{{0, 0, 1, 1}, {0, -1, 0, -1}, {0, 1, 2, 2}};
                pool.prepare(wanted);
                std::vector<float> gradient(10'000);
                int steps = 0;
                do {
                  ++steps;
                  std::ranges::fill(gradient, 1.0F);
                  comm.all_reduce(gradient);
                  ASSERT_EQ(gradient[0], 4.0F);
                } while (!pool.all_are_ready(TeamPool::Hear::later));
                EXPECT_GE(steps, 2);
                const auto calls = comm.traffic().operations;
                EXPECT_EQ(sum_over(*pool.team(wanted[0]), 1), 2.0F);
                if (Team* const leaders = pool.team(wanted[1])) {
                  EXPECT_EQ(sum_over(*leaders, 1), 2.0F);
                }
                EXPECT_EQ(comm.traffic().operations, calls) << "something was formed only now";
                pool.prepare(wanted);
                EXPECT_TRUE(pool.all_are_ready(TeamPool::Hear::now)) << "all of it was there";
                comm.barrier();
              },
              {.way = way});
}

// All that a synchronizer asks for has been formed, whatever its policy: none of its messages are in `comm` then.
TEST(TeamPool, HasWhatASynchronizerAsksFor) {
  for (const auto& [sync, compress] :
       std::vector<std::pair<std::string, std::string>>{{"node:2", "none"},
                                                        {"node:2", "int8"},
                                                        {"bsp", "int8"},
                                                        {"post-local:2", "int8"},
                                                        {"diloco:2", "none"},
                                                        {"hierarchy:node=1,rack=2,world=4", "none"},
                                                        {"hierarchy:node=2,rack=4,world=8", "int8"},
                                                        {"diloco:4,fragments=2", "int8"},
                                                        {"gossip", "none"}})
    run_ranks(8,
              [&, sync = sync, compress = compress](Communicator& comm) {
                const SynchronizerOptions options{.sync = sync,
                                                  .compress = compress,
                                                  .place = sync.starts_with("hierarchy") ? "node=4,rack=2" : "node=4",
                                                  .run = {.steps_per_epoch = 8, .steps = 16},
                                                  .groups = std::make_shared<TeamPool>(comm)};
                Synchronizer::prepare(comm, options);
                while (!options.groups->all_are_ready(TeamPool::Hear::now)) std::this_thread::yield();
                const auto formed = options.groups->asked();
                Synchronizer synchronizer(comm, options);
                std::vector<float> parameters(64, static_cast<float>(comm.rank()));
                synchronizer.begin(std::vector<float>(64, 0), {Tensor{.rows = 32}, Tensor{.rows = 32}});
                for (std::uint64_t step = 0; step < 8; ++step) {
                  if (synchronizer.begin_step(step))
                    synchronizer.gradients()->start({.values = parameters, .tensors = {}})->wait();
                  synchronizer.end_step(step + 1, 0.1, parameters);
                }
                synchronizer.end(parameters);
                EXPECT_EQ(options.groups->asked(), formed) << sync << ", " << compress;
                comm.barrier();
              },
              {.way = "shm"});
}

TEST(TeamPool, AGroupIsOfRanksThatAreAndOfWhoAsks) {
  run_ranks(2,
            [](Communicator& comm) {
              for (const auto& [members, why] : std::vector<std::pair<std::vector<Rank>, const char*>>{
                       {{0, 2}, "rank 2 cannot be in a group twice, or of a world of 2"},
                       {{0, 0, 1}, "rank 0 cannot be in a group twice"},
                       {{1 - comm.rank()}, "is not among the members"},
                       {{}, "is not among the members"}})
                try {
                  comm.create_group(members, 7);
                  ADD_FAILURE() << why;
                } catch (const Error& error) {
                  EXPECT_EQ(error.kind(), ErrorKind::usage);
                  EXPECT_THAT(error.what(), testing::HasSubstr(why));
                }
              comm.barrier();
            },
            {.way = "shm"});
}

TEST(TeamPool, RanksThatNameOtherMembersOfAGroupAreToldSo) {
  using Groups = std::vector<std::vector<Rank>>;  // by rank, those that each names
  for (const Groups& groups :
       {Groups{{0, 1}, {0, 1, 2}, {0, 1, 2}}, Groups{{1, 0, 2}, {0, 1, 2}, {0, 1, 2}},
        Groups{{0, 1, 2}, {0, 1, 2}, {0, 2, 1}}, Groups{{0, 1, 2}, {1, 0, 2}, {2, 0, 1}}, Groups{{0, 1}, {1, 0}}})
    for (const char* way : {"shm", "tcp"})
      run_ranks(static_cast<Rank>(groups.size()),
                [&](Communicator& comm) {
                  try {
                    comm.create_group(groups[static_cast<std::size_t>(comm.rank())], 7);
                    ADD_FAILURE() << "rank " << comm.rank();
                  } catch (const Error& error) {
                    EXPECT_EQ(error.kind(), ErrorKind::mismatch) << error.what();
                    EXPECT_THAT(error.what(), testing::HasSubstr("call create_group with the same ranks in the same"));
                  }
                  comm.barrier();
                },
                {.way = way});
}

TEST(TeamPool, AMessageOfTheProgramsIsNoGroup) {
  run_ranks(2,
            [](Communicator& comm) {
              const std::array<std::int64_t, 1> length{5};
              const std::array<std::uint8_t, 5> text{1, 2, 3, 4, 5};
              if (comm.rank() == 1) {
                comm.send(length, 0, 7);
                comm.send(text, 0, 7);
              } else {
                try {
                  comm.create_group({0, 1}, 7);
                  ADD_FAILURE() << "formed of nothing";
                } catch (const Error& error) {
                  EXPECT_EQ(error.kind(), ErrorKind::mismatch) << error.what();
                  EXPECT_THAT(error.what(), testing::HasSubstr("give create_group a tag of its own"));
                }
              }
              comm.barrier();
            },
            {.way = "shm"});
}

// Before it forms anything, and others wait for it.
TEST(TeamPool, ARankThatIsLostMeanwhileIsToldToAll) {
  std::atomic<int> told = 0;
  EXPECT_THROW(run_ranks(3,
                         [&](Communicator& comm) {
                           TeamPool pool(comm);
                           if (comm.rank() == 2) {
                             std::this_thread::sleep_for(50ms);
                             throw std::runtime_error("it ends");
                           }
                           try {
                             pool.prepare({{0, 0, 0}});
                             while (!pool.all_are_ready(TeamPool::Hear::now)) std::this_thread::sleep_for(1ms);
                           } catch (const Error&) {
                             ++told;
                             throw;
                           }
                         },
                         {.way = "tcp"}),
               std::runtime_error);
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace ranvier::replica
