// The costs that docs/algorithms.md states, counted on the compiled programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "schedule/every_schedule.h"

namespace ranvier {
namespace {

constexpr std::size_t part_elements = 12;
constexpr std::size_t part = part_elements * verified_element_bytes;  // bytes of one rank's part, or of a chunk

// The vector is `world` parts long in every collective that has chunks.
Verdict cost_of(const Schedule& schedule) {
  const auto world = static_cast<std::size_t>(schedule.world);
  const std::size_t count = part_elements * (moves_whole_vector(schedule.collective) ? world : 1);
  const Verdict verdict = verify(schedule, {.count = count, .slice_bytes = 16});
  EXPECT_TRUE(verdict.ok) << name(schedule) << ": " << verdict.problem;
  return verdict;
}

void expect_cost(const Schedule& schedule, std::size_t rounds, std::size_t bytes, std::size_t messages) {
  const Verdict cost = cost_of(schedule);
  EXPECT_EQ(cost.rounds, rounds) << name(schedule);
  EXPECT_EQ(cost.most_bytes_sent, bytes) << name(schedule);
  EXPECT_EQ(cost.most_messages, messages) << name(schedule);
  EXPECT_EQ(cost.vector_bytes, part * static_cast<std::size_t>(schedule.world)) << name(schedule);
}

class Cost : public testing::TestWithParam<Rank> {
 protected:
  const Rank world = GetParam();
  const std::size_t p = static_cast<std::size_t>(world);
  const std::size_t n = p * part;
  const std::size_t log_p = std::bit_width(p - 1);  // rounded up
};

INSTANTIATE_TEST_SUITE_P(Worlds, Cost, testing::Values(2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32));

TEST_P(Cost, OfARingIsTheFewestBytesInManyRounds) {
  expect_cost(ring(Collective::all_reduce, world), 2 * (p - 1), 2 * (p - 1) * n / p, 2 * (p - 1));
  expect_cost(ring(Collective::reduce_scatter, world), p - 1, (p - 1) * n / p, p - 1);
  expect_cost(ring(Collective::all_gather, world), p - 1, (p - 1) * n / p, p - 1);
}

TEST_P(Cost, OfHalvingDoublingIsTheFewestBytesInTheFewestRounds) {
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    const std::size_t turns = collective == Collective::all_reduce ? 2 : 1;
    const Verdict cost = cost_of(halving_doubling(collective, world));
    EXPECT_EQ(cost.rounds, turns * log_p);
    EXPECT_EQ(cost.most_bytes_sent, turns * (p - 1) * n / p);
    // One message a round on a hypercube; elsewhere runs of chunks may go around the end of the vector.
    if (std::has_single_bit(p))
      EXPECT_EQ(cost.most_messages, turns * log_p);
    else
      EXPECT_LE(cost.most_messages, 2 * turns * log_p);
  }
}

TEST_P(Cost, OfATreeIsTheFewestRounds) {
  expect_cost(binomial_tree(Collective::broadcast, world), log_p, log_p * n, log_p);
  expect_cost(binomial_tree(Collective::reduce, world), log_p, n, 1);
  expect_cost(binomial_tree(Collective::all_reduce, world), 2 * log_p, log_p * n, log_p);
  expect_cost(binomial_tree(Collective::scatter, world), log_p, (p - 1) * part, log_p);
  std::size_t largest_subtree = 0;
  for (std::size_t child = 1; child < p; child *= 2)
    largest_subtree = std::max(largest_subtree, std::min(child, p - child));
  expect_cost(binomial_tree(Collective::gather, world), log_p, largest_subtree * part, 1);
}

TEST_P(Cost, OfDirectExchangeIsOneRoundAndTwoForAllReduce) {
  expect_cost(direct(Collective::all_reduce, world), 2, 2 * (p - 1) * n / p, 2 * (p - 1));
  for (const Collective collective :
       {Collective::reduce_scatter, Collective::all_gather, Collective::all_to_all, Collective::scatter})
    expect_cost(direct(collective, world), 1, (p - 1) * n / p, p - 1);
  expect_cost(direct(Collective::broadcast, world), 1, (p - 1) * n, p - 1);
  expect_cost(direct(Collective::reduce, world), 1, n, 1);
  expect_cost(direct(Collective::gather, world), 1, part, 1);
}

TEST_P(Cost, OfOneRoundIsOneRoundOfEverything) { expect_cost(one_round(world), 1, (p - 1) * n, p - 1); }

TEST_P(Cost, InScratchIsWhatTheDocumentsSay) {
  const auto most_scratch = [&](const Schedule& schedule) {
    std::size_t most = 0;
    const std::size_t count = part_elements * (moves_whole_vector(schedule.collective) ? p : 1);
    for (Rank rank = 0; rank < world; ++rank) {
      const Layout layout = even_layout(schedule, rank, count, verified_element_bytes);
      most = std::max(most, compile(schedule, rank, layout, {}).scratch_bytes);
    }
    return most;
  };
  EXPECT_EQ(most_scratch(ring(Collective::all_reduce, world)), 0u);
  EXPECT_EQ(most_scratch(ring(Collective::all_gather, world)), 0u);
  EXPECT_EQ(most_scratch(ring(Collective::reduce_scatter, world)), (p - 2) * part);
  EXPECT_EQ(most_scratch(halving_doubling(Collective::all_reduce, world)), 0u);
  EXPECT_EQ(most_scratch(halving_doubling(Collective::reduce_scatter, world)), p == 2 ? 0 : (p + 1) / 2 * part);
  EXPECT_EQ(most_scratch(binomial_tree(Collective::all_reduce, world)), 0u);
  EXPECT_EQ(most_scratch(binomial_tree(Collective::reduce, world)), p <= 3 ? 0 : n);
  EXPECT_EQ(most_scratch(one_round(world)), p == 2 ? 0 : n);
  for (const Collective collective : algorithms()[3].collectives) {
    ASSERT_EQ(algorithms()[3].name, "direct");
    EXPECT_EQ(most_scratch(direct(collective, world)), 0u) << name_of(collective);
  }
}

}  // namespace
}  // namespace ranvier
