// Proof, rounds, bytes per rank and contention, reported together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/topology.h"
#include "schedule/every_schedule.h"

namespace ranvier {
namespace {

using testing::HasSubstr;

TEST(Assess, ARingOnARingSharesNoLink) {
  for (Rank world = 2; world <= 20; ++world) {
    const std::array networks{topology::ring(world)};
    const Assessment found = assess(ring(Collective::all_reduce, world), networks);
    EXPECT_TRUE(found.verdict.ok) << found.verdict.problem;
    EXPECT_EQ(found.verdict.rounds, static_cast<std::uint32_t>(2 * (world - 1)));
    EXPECT_DOUBLE_EQ(found.sent(), 2.0 * (world - 1) / world);
    EXPECT_EQ(found.contentions.at(0).most_transfers, 1u);
  }
}

TEST(Assess, DirectExchangeOnAStarSharesARanksLinkAmongAllOthers) {
  for (Rank world = 2; world <= 20; ++world) {
    const std::array networks{topology::star(world), topology::fully_connected(world)};
    const Assessment found = assess(direct(Collective::all_to_all, world), networks);
    EXPECT_TRUE(found.verdict.ok) << found.verdict.problem;
    EXPECT_EQ(found.verdict.rounds, 1u);
    EXPECT_DOUBLE_EQ(found.sent(), static_cast<double>(world - 1) / world);
    EXPECT_EQ(found.contentions.at(0).most_transfers, static_cast<std::uint32_t>(world - 1));
    EXPECT_EQ(found.contentions.at(1).most_transfers, 1u);
  }
}

// Whatever the algorithm, what is reported is what the parts say for themselves.
TEST(Assess, EveryScheduleIsProvenAndCosted) {
  for (const Rank world : {1, 2, 5, 8})
    for_each_shape(world, world / 3, [&](const Schedule& schedule) {
      SCOPED_TRACE(name(schedule));
      const std::array networks{topology::ring(world)};
      const Assessment found = assess(schedule, networks);
      EXPECT_TRUE(found.verdict.ok) << found.verdict.problem;
      const Verdict exact = verify(schedule, {.count = moves_whole_vector(schedule.collective) ? schedule.chunks : 1});
      EXPECT_EQ(found.verdict.rounds, exact.rounds);
      EXPECT_EQ(found.verdict.most_bytes_sent, exact.most_bytes_sent);
      EXPECT_EQ(found.verdict.vector_bytes, exact.vector_bytes);
      const Contention alone = contention(schedule, networks[0]);
      EXPECT_EQ(found.contentions.at(0).most_transfers, alone.most_transfers);
      EXPECT_EQ(found.contentions.at(0).load_by_rounds, alone.load_by_rounds);
    });
}

TEST(Assess, OneRankSendsNothing) {
  const Assessment found = assess(ring(Collective::all_reduce, 1), {});
  EXPECT_TRUE(found.verdict.ok);
  EXPECT_EQ(found.sent(), 0);
  EXPECT_TRUE(found.contentions.empty());
}

TEST(Assess, AWrongScheduleIsToldByItsProblem) {
  Schedule wrong = ring(Collective::all_gather, 4);
  wrong.program = [program = wrong.program](Rank rank) {
    std::vector<Step> steps = program(rank);
    if (rank == 2) steps.pop_back();
    return steps;
  };
  const std::array networks{topology::star(4)};
  const Assessment found = assess(wrong, networks);
  EXPECT_FALSE(found.verdict.ok);
  EXPECT_THAT(found.verdict.problem, HasSubstr("rank 2"));
}

TEST(Assess, ANetworkOfAnotherWorldIsRefused) {
  const std::array networks{topology::star(5)};
  EXPECT_THROW(assess(ring(Collective::all_reduce, 4), networks), Error);
}

}  // namespace
}  // namespace ranvier
