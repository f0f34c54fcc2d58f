// What the search chooses, where the right choice is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranvier/error.h"
#include "ranvier/plan.h"

namespace ranvier {
namespace {

Topology star(Rank world, double bytes_per_second) {
  return topology::star(world, {.bytes_per_second = bytes_per_second, .latency = std::chrono::microseconds(1)});
}

TEST(Plan, PutsTheShortestStepFirst) {
  const auto ranked =
      rank_plans(make_workload("resnet50"), star(8, 1e9), {.algorithms = {"ring", "direct", "binomial_tree"}});
  EXPECT_EQ(ranked.size(), 15u);
  EXPECT_TRUE(std::ranges::is_sorted(ranked, {}, [](const PlanChoice& choice) { return choice.step.step_ns; }));
  EXPECT_NE(ranked.front().algorithm, "binomial_tree");  // it sends everything twice over one link
}

TEST(Plan, CompressesOnlyWhereThatPays) {
  PlanSearch search{.algorithms = {"ring"}, .codecs = {{}, {.spec = "half", .wire_bytes = 0.5, .ns_per_byte = 1}}};
  EXPECT_EQ(rank_plans(make_workload("resnet50"), star(8, 1e8), search).front().codec, "half");  // 10 ns a byte
  EXPECT_EQ(rank_plans(make_workload("resnet50"), star(8, 100e9), search).front().codec, "");    // 0.01 ns a byte
}

TEST(Plan, FewMessagesForSmallVectorsFewBytesForLargeOnes) {
  const auto table = fastest_algorithms(star(8, 1e9), {"ring", "one_round", "binomial_tree"}, 1 << 22);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].algorithm, "one_round");
  EXPECT_EQ(table[1].algorithm, "ring");
  EXPECT_EQ(table[1].up_to, std::numeric_limits<std::size_t>::max());
}

TEST(Plan, LeavesOutWhatCannotBe) {
  EXPECT_THROW(rank_plans(make_workload("resnet50"), star(2048, 1e9), {.algorithms = {"binomial_tree"}}), Error);
  EXPECT_EQ(rank_plans(make_workload("resnet50"), star(2048, 1e9), {.algorithms = {"binomial_tree", "ring"}}).size(),
            5u);
}

}  // namespace
}  // namespace ranvier
