// What --sync auto finds out by training alone, and how little it measures beside. Rounds and bytes are counted; times
// are those that the test says.
#include "integrations/trainer/auto_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/cluster.h"

namespace ranvier::trainer {
namespace {

using namespace std::chrono_literals;
using support::run_ranks;
using testing::HasSubstr;

constexpr std::size_t parameters = 100'000;
constexpr std::uint64_t all_bytes = parameters * sizeof(float);
// What ranks tell each other to decide alike: numbers.
constexpr std::uint64_t words = 16 << 10;

// So many steps by which rank 2 keeps the others waiting.
void take_steps(AutoPolicy& policy, const Communicator& comm, std::chrono::milliseconds exposed,
                std::chrono::milliseconds hidden) {
  for (int step = 0; step < 10; ++step)
    policy.add({.waited = comm.rank() == 2 ? exposed : exposed + 20ms, .hidden = comm.rank() == 2 ? hidden : 0ms});
}

std::vector<PaceReport> equal(std::size_t ranks, double seconds_per_sample) {
  return std::vector<PaceReport>(ranks, PaceReport{.seconds_per_sample = seconds_per_sample, .steps = 10});
}

// By all ranks together.
std::uint64_t sum(Communicator& comm, std::uint64_t own) {
  std::array<std::int64_t, 1> all{static_cast<std::int64_t>(own)};
  comm.all_reduce(all);
  return static_cast<std::uint64_t>(all[0]);
}
std::uint64_t sent_to_others(Communicator& comm, const std::vector<int>& nodes) {
  std::uint64_t bytes = 0;
  for (Rank peer = 0; peer < comm.world(); ++peer)
    if (nodes[static_cast<std::size_t>(peer)] != nodes[static_cast<std::size_t>(comm.rank())])
      bytes += comm.bytes_sent_to(peer);
  return sum(comm, bytes);
}

TEST(AutoPolicy, FastLinksAreKnownByTheStepsThatCrossedThem) {
  run_ranks(4, [](Communicator& comm) {
    AutoPolicy policy(std::make_shared<replica::TeamPool>(comm), {0, 0, 1, 1}, 128, {Tensor{.rows = parameters}},
                      "none", true);
    take_steps(policy, comm, 1ms, 1ms);
    policy.add_paces(equal(4, 1e-3));
    const auto choice = policy.choose({}, 100);
    EXPECT_EQ(choice.sync, "bsp");
    EXPECT_THAT(choice.reason, HasSubstr("bsp takes 33.0 ms"));
    EXPECT_THAT(choice.reason, HasSubstr("and 2.0 among all"));
    EXPECT_EQ(policy.measurements(), 0U);
    EXPECT_LE(sum(comm, comm.traffic().bytes_sent), words);
  });
}

// Beside what training shows it takes messages inside of nodes, of 256 KiB at most.
TEST(AutoPolicy, ASlowLinkIsNotCrossedToMeasureIt) {
  run_ranks(4, [](Communicator& comm) {
    const std::vector<int> nodes{0, 0, 1, 1};
    AutoPolicy policy(std::make_shared<replica::TeamPool>(comm), nodes, 4000, {Tensor{.rows = parameters}}, "none",
                      true);
    take_steps(policy, comm, 350ms, 50ms);
    policy.add_paces(equal(4, 1e-3));
    const auto choice = policy.choose({}, 100);
    EXPECT_EQ(choice.sync, "node:16");
    EXPECT_THAT(choice.reason, HasSubstr("bsp 1350.0"));
    EXPECT_THAT(choice.reason, HasSubstr("async at least 1200.0"));
    EXPECT_THAT(choice.reason, HasSubstr("and 400.0 among all"));
    EXPECT_GE(policy.measurements(), 1U);
    EXPECT_LE(policy.measurements(), 3U);
    EXPECT_LE(sent_to_others(comm, nodes), words);

    // On its way it sees both: what nodes take, and what all do, every sixteenth time.
    const auto before = policy.measurements();
    for (int step = 0; step < 16; ++step) policy.add({.waited = step == 15 ? 62ms : 2ms, .among_all = step == 15});
    EXPECT_THAT(policy.choose(choice, 84).reason, HasSubstr("2.0 ms inside nodes and 60.0 among all"));
    EXPECT_EQ(policy.measurements(), before);
    EXPECT_LE(sent_to_others(comm, nodes), 2 * words);
  });
}

// A message that was held up would say for ever that nodes have slow links of their own.
TEST(AutoPolicy, ANodesLinksAreMeasuredAgainWhenSomeTimeHasPassed) {
  run_ranks(4, [](Communicator& comm) {
    AutoPolicy policy(std::make_shared<replica::TeamPool>(comm), {0, 0, 1, 1}, 4000, {Tensor{.rows = parameters}},
                      "none", false);
    policy.add_paces(equal(4, 1e-3));
    const auto look = [&] {
      take_steps(policy, comm, 350ms, 50ms);
      return policy.choose({.sync = "bsp"}, 100).sync;
    };
    EXPECT_EQ(look(), "node:16");
    EXPECT_EQ(policy.measurements(), 3U) << "the shortest of three";
    for (int looks = 0; looks < 400 && policy.measurements() == 3; ++looks) {
      std::this_thread::sleep_for(50ms);
      EXPECT_EQ(look(), "node:16");
    }
    EXPECT_EQ(policy.measurements(), 6U);
  });
}

// Servers are tried where they may win: a few pushes of one and of all, and not again at once.
TEST(AutoPolicy, ServersAreMeasuredOnceWhereTheyMayWin) {
  run_ranks(4, [](Communicator& comm) {
    auto late = equal(4, 1e-3);
    for (auto& each : late) {
      each.late_share = 0.1;
      each.late_factor = 6;
    }
    AutoPolicy policy(std::make_shared<replica::TeamPool>(comm), {0, 0, 0, 0}, 4000, {Tensor{.rows = parameters}},
                      "none", true);
    take_steps(policy, comm, 5ms, 0ms);
    policy.add_paces(late);
    const auto choice = policy.choose({}, 1000);
    EXPECT_EQ(choice.sync, "async");
    const auto rounds = policy.measurements();
    EXPECT_GE(rounds, 2U);
    EXPECT_LE(rounds, 6U);
    // A push of all is three quarters of all parameters of each to others, and as much back.
    EXPECT_LE(sum(comm, comm.traffic().bytes_sent), words + 3 * (1 + 4) * 2 * all_bytes * 3 / 4 + 3 * 1024);
    policy.add_pushes(8ms, 2);
    EXPECT_EQ(policy.choose(choice, 900).sync, "async");
    EXPECT_EQ(policy.measurements(), rounds);
  });
}

// Of a run that is nearly over nothing is worth holding it up.
TEST(AutoPolicy, NothingIsMeasuredThatTheStepsLeftCannotWinBack) {
  for (const double steps_left : {0.0, 2.0, 1000.0})
    run_ranks(4, [steps_left](Communicator& comm) {
      AutoPolicy policy(std::make_shared<replica::TeamPool>(comm), {0, 0, 1, 1}, 4000, {Tensor{.rows = parameters}},
                        "none", true);
      take_steps(policy, comm, 350ms, 0ms);
      policy.add_paces(equal(4, 1e-3));
      const auto choice = policy.choose({}, steps_left);
      EXPECT_EQ(choice.sync, steps_left > 10 ? "node:16" : "bsp") << steps_left;
      EXPECT_EQ(policy.measurements() > 0, steps_left > 10) << steps_left;
    });
}

}  // namespace
}  // namespace ranvier::trainer
