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
  PlanSearch search{
      .algorithms = {"ring"},
      .codecs = {{}, {.spec = "half", .wire_bytes = 0.5, .encode_ns_per_byte = 0.5, .decode_ns_per_byte = 0.5}}};
  EXPECT_EQ(rank_plans(make_workload("resnet50"), star(8, 1e8), search).front().codec, "half");  // 10 ns a byte
  EXPECT_EQ(rank_plans(make_workload("resnet50"), star(8, 100e9), search).front().codec, "");    // 0.01 ns a byte
}

// Each of 4 ranks codes its bucket and a quarter of the sum, and decodes three quarters twice.
TEST(Plan, CodesThatCannotBeAddedGoToTheOwnersOfParts) {
  const CodecSpeed codec{
      .spec = "c", .wire_bytes = 0.5, .encode_ns_per_byte = 4, .decode_ns_per_byte = 2, .summable = false};
  const StepSimulation how = with_codec({.algorithm = "ring", .bucket_bytes = 1000}, codec, 4);
  EXPECT_EQ(how.algorithm, "direct");
  EXPECT_EQ(how.bucket_bytes, 500);
  EXPECT_DOUBLE_EQ(how.codec_ns_per_byte * how.gradient_scale, 4 * 1.25 + 2 * 2 * 0.75);
}

TEST(Plan, TheTableBySizeIsAChoiceOfItsOwn) {
  PlanSearch search{.algorithms = {"ring", "one_round"}, .bucket_bytes = {64e3}};
  const Topology star = topology::star(8, {.bytes_per_second = 1e9, .latency = std::chrono::microseconds(100)});
  search.by_size = fastest_algorithms(star, search.algorithms, 1 << 20);
  const auto ranked = rank_plans(make_workload("resnet50"), star, search);
  const auto of = [&](std::string_view algorithm) {
    return std::ranges::find(ranked, algorithm, &PlanChoice::algorithm)->step.step_ns;
  };
  EXPECT_LE(of(by_size), of("ring"));
  EXPECT_LE(of(by_size), of("one_round"));
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
