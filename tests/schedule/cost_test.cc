// The costs that docs/algorithms.md states, counted on the compiled programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "schedule/every_schedule.h"

namespace ranvier {
namespace {

constexpr std::size_t part_elements = 12;
constexpr std::size_t part = part_elements * verified_element_bytes;  // bytes of one rank's part, or of a chunk

// The vector is `world` parts long in every collective that has chunks.
Verdict cost_of(const Schedule& schedule) {
  const auto world = static_cast<std::size_t>(schedule.world);
  const std::size_t count = part_elements * (moves_whole_vector(schedule.collective) ? world : 1);
  Verdict verdict = verify(schedule, {.count = count, .slice_bytes = 16});
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

// Of the rank that has most.
std::size_t most_scratch(const Schedule& schedule) {
  const auto world = static_cast<std::size_t>(schedule.world);
  const std::size_t count = part_elements * (moves_whole_vector(schedule.collective) ? world : 1);
  std::size_t most = 0;
  for (Rank rank = 0; rank < schedule.world; ++rank) {
    const Layout layout = even_layout(schedule, rank, count, verified_element_bytes);
    most = std::max(most, compile(schedule, rank, layout, {}).scratch_bytes);
  }
  return most;
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
  for (const Rank root : {0, world / 2}) {
    expect_cost(ring(Collective::broadcast, world, root), p - 1, n, 1);
    expect_cost(ring(Collective::reduce, world, root), p - 1, n, 1);
  }
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

TEST_P(Cost, OfABidirectionalRingIsHalfTheRoundsOfARing) {
  expect_cost(bidirectional_ring(Collective::all_reduce, world), 2 * (p / 2), 2 * (p - 1) * n / p, 2 * (p - 1));
  expect_cost(bidirectional_ring(Collective::reduce_scatter, world), p / 2, (p - 1) * n / p, p - 1);
  expect_cost(bidirectional_ring(Collective::all_gather, world), p / 2, (p - 1) * n / p, p - 1);
}

TEST_P(Cost, OfRecursiveDoublingIsAVectorARoundAndTwoRoundsToFold) {
  const std::size_t exchanges = std::bit_width(p) - 1;  // log2 rounded down
  const bool folds = !std::has_single_bit(p);
  for (const Schedule& schedule :
       {recursive_doubling(Collective::all_reduce, world), swing_latency(Collective::all_reduce, world)})
    expect_cost(schedule, exchanges + (folds ? 2 : 0), (exchanges + (folds ? 1 : 0)) * n, exchanges + (folds ? 1 : 0));
}

TEST_P(Cost, OfSwingIsTheFewestBytesInTheFewestRounds) {
  const std::size_t rounds = std::bit_width(p - p % 2 - 1);
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
    const std::size_t turns = collective == Collective::all_reduce ? 2 : 1;
    const Verdict cost = cost_of(swing(collective, world));
    EXPECT_EQ(cost.rounds, turns * rounds);
    EXPECT_EQ(cost.most_bytes_sent, turns * (p - 1) * n / p);
    if (std::has_single_bit(p) && collective == Collective::all_reduce)
      EXPECT_EQ(cost.most_messages, turns * rounds);
    else
      EXPECT_LE(cost.most_messages, turns * (p - 1));
  }
}

TEST_P(Cost, OfADoubleBinaryTreeIsSharedByAllRanks) {
  expect_cost(double_binary_tree(Collective::broadcast, world), log_p, n, 2);
  expect_cost(double_binary_tree(Collective::reduce, world), log_p, n, 2);
  const std::size_t halves = std::min<std::size_t>(p, 4);
  expect_cost(double_binary_tree(Collective::all_reduce, world), 2 * log_p, halves * n / 2, halves);
}

TEST_P(Cost, OfABineTreeIsThatOfABinomialTree) {
  expect_cost(bine_tree(Collective::broadcast, world), log_p, log_p * n, log_p);
  expect_cost(bine_tree(Collective::reduce, world), log_p, n, 1);
  expect_cost(bine_tree(Collective::all_reduce, world), 2 * log_p, log_p * n, log_p);
  // A subtree's ranks may go around the end of the vector: two messages.
  const Verdict scatter = cost_of(bine_tree(Collective::scatter, world));
  EXPECT_EQ(scatter.rounds, log_p);
  EXPECT_EQ(scatter.most_bytes_sent, (p - 1) * part);
  EXPECT_LE(scatter.most_messages, 2 * log_p);
  const Verdict gather = cost_of(bine_tree(Collective::gather, world));
  EXPECT_EQ(gather.rounds, log_p);
  EXPECT_EQ(gather.most_bytes_sent, p / 2 * part);
  EXPECT_LE(gather.most_messages, 2u);
}

// How far messages go in all, along a ring of the ranks.
std::size_t distance_of(const Schedule& schedule) {
  std::size_t distance = 0;
  for (Rank rank = 0; rank < schedule.world; ++rank)
    for (const Step& step : schedule.program(rank)) {
      if (step.action != Action::send) continue;
      const Rank apart = std::abs(step.peer - rank);
      distance += step.chunks * static_cast<std::size_t>(std::min(apart, schedule.world - apart));
    }
  return distance;
}

TEST(Distance, OfSwingAndBineIsShorterThanOfWhatTheyReplace) {
  for (const Rank world : {8, 16, 32, 64, 128}) {
    EXPECT_LT(distance_of(swing(Collective::all_gather, world)),
              distance_of(halving_doubling(Collective::all_gather, world)));
    EXPECT_LT(distance_of(swing_latency(Collective::all_reduce, world)),
              distance_of(recursive_doubling(Collective::all_reduce, world)));
    EXPECT_LT(distance_of(bine_tree(Collective::broadcast, world)),
              distance_of(binomial_tree(Collective::broadcast, world)));
  }
}

TEST(Distance, OnRingsToriAndMeshesIsToNeighboursOnly) {
  const auto apart = [](Rank a, Rank b, Rank size, bool around) {
    const Rank direct = std::abs(a - b);
    return around ? std::min(direct, size - direct) : direct;
  };
  for (const Rank rows : {2, 3, 5})
    for (const Rank columns : {2, 4, 5})
      for (const bool around : {false, true})
        for (const Collective collective :
             {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
          const Rank world = rows * columns;
          const Schedule schedule =
              around ? torus(collective, world, {rows, columns}) : mesh(collective, world, {rows, columns});
          for (Rank rank = 0; rank < world; ++rank)
            for (const Step& step : schedule.program(rank)) {
              if (step.peer < 0) continue;
              EXPECT_EQ(apart(rank / columns, step.peer / columns, rows, around) +
                            apart(rank % columns, step.peer % columns, columns, around),
                        1)
                  << name(schedule);
            }
        }
  EXPECT_EQ(distance_of(bidirectional_ring(Collective::all_gather, 7)), 7u * 6);
}

struct GridCost {
  std::size_t dims = 0;
  std::size_t others = 0;  // how many other ranks there are in a rank's lines
  std::size_t around = 0;  // how far the farthest ones are, with links that close the rings
};

void expect_grid_costs(Rank world, const std::vector<Rank>& dims, const GridCost& grid) {
  const auto p = static_cast<std::size_t>(world);
  const std::size_t bytes = (p - 1) * part;
  expect_cost(multi_dimensional(Collective::all_reduce, world, dims), 2 * grid.dims, 2 * bytes,
              2 * grid.dims * grid.others);
  expect_cost(torus(Collective::all_reduce, world, dims), 2 * grid.around, 2 * bytes, 2 * grid.dims * grid.others);
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather}) {
    expect_cost(multi_dimensional(collective, world, dims), grid.dims, bytes, grid.others);
    expect_cost(torus(collective, world, dims), grid.around, bytes, grid.others);
  }
  expect_cost(mesh(Collective::reduce_scatter, world, dims), grid.others, bytes, grid.others);
  EXPECT_EQ(cost_of(mesh(Collective::all_gather, world, dims)).rounds, grid.others);
  EXPECT_EQ(cost_of(mesh(Collective::all_reduce, world, dims)).rounds, 2 * grid.others);
}

TEST(GridCost, IsTheFewestBytesOnAnyGrid) {
  expect_grid_costs(7, {}, {.dims = 1, .others = 6, .around = 3});
  expect_grid_costs(12, {}, {.dims = 2, .others = 5, .around = 3});
  expect_grid_costs(16, {}, {.dims = 2, .others = 6, .around = 4});
  expect_grid_costs(6, {1, 6}, {.dims = 1, .others = 5, .around = 3});
  expect_grid_costs(10, {2, 5}, {.dims = 2, .others = 5, .around = 3});
  expect_grid_costs(8, {2, 2, 2}, {.dims = 3, .others = 3, .around = 3});
  expect_grid_costs(24, {2, 4, 3}, {.dims = 3, .others = 6, .around = 4});
}

// Along a line of d, a rank in its middle passes d - 1 shares on to reduce, and d + 1 to gather.
TEST(GridCost, OfAMeshIsTwoSharesMoreInTheMiddleOfALine) {
  expect_cost(mesh(Collective::all_gather, 7), 6, 8 * part, 8);
  expect_cost(mesh(Collective::all_reduce, 7), 12, (6 + 8) * part, 6 + 8);
  // First 4 ranks of a line with a chunk each, then 3 with 4 chunks each.
  expect_cost(mesh(Collective::all_gather, 12, {3, 4}), 2 + 3, (5 * 1 + 4 * 4) * part, 5 + 4);
  // One half of the vector as above, the other along the other dimension first: 3 ranks with a chunk, 4 with 3 each.
  expect_cost(mesh(Collective::all_reduce, 12, {3, 4}), 2 * (2 + 3),
              (11 + 11 + 5 * 1 + 4 * 4 + 4 * 1 + 5 * 3) * part / 2, 2 * (2 + 3 + 5 + 4));
  expect_cost(mesh(Collective::all_reduce, 4, {2, 2}), 4, 2 * 3 * part, 8);  // no middle: the fewest bytes
}

TEST(HierarchicalCost, CrossesBetweenNodesAsLittleAsCanBe) {
  for (const auto& [nodes, per_node] : {std::pair{2u, 2u}, {3u, 4u}, {4u, 3u}, {5u, 2u}, {1u, 6u}, {6u, 1u}}) {
    const std::size_t p = std::size_t{nodes} * per_node;
    const auto world = static_cast<Rank>(p);
    const std::size_t inside = per_node > 1 ? 1 : 0;
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
      const std::size_t turns = collective == Collective::all_reduce ? 2 : 1;
      const Schedule schedule = hierarchical(collective, world, static_cast<Rank>(per_node));
      const Verdict cost = cost_of(schedule);
      EXPECT_EQ(cost.rounds, turns * (inside + nodes / 2)) << name(schedule);
      EXPECT_EQ(cost.most_bytes_sent, turns * (p - 1) * part) << name(schedule);
      // The chunks that one node's rank has for others' nodes lie side by side in an all_reduce only.
      const std::size_t sums = 2 * (per_node - 1 + nodes - 1);
      EXPECT_EQ(cost.most_messages, collective == Collective::all_reduce ? sums : p - 1) << name(schedule);
      std::size_t leaving = 0;
      for (const Step& step : schedule.program(0))
        if (step.action == Action::send && step.peer >= static_cast<Rank>(per_node)) leaving += step.chunks;
      EXPECT_EQ(leaving, turns * (nodes - 1)) << name(schedule);
    }
  }
}

TEST_P(Cost, OfRoundRobinIsARoundForEachPartner) {
  const std::size_t rounds = p % 2 == 0 ? p - 1 : p;
  expect_cost(round_robin(Collective::all_reduce, world), 2 * rounds, 2 * (p - 1) * n / p, 2 * (p - 1));
  for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather, Collective::all_to_all}) {
    const Schedule schedule = round_robin(collective, world);
    expect_cost(schedule, rounds, (p - 1) * n / p, p - 1);
    // Nobody has two partners in a round, and everybody meets everybody.
    for (Rank rank = 0; rank < world; ++rank) {
      std::map<std::uint32_t, std::set<Rank>> partners;
      std::set<Rank> met;
      for (const Step& step : schedule.program(rank)) {
        if (step.peer < 0) continue;
        partners[step.round].insert(step.peer);
        met.insert(step.peer);
      }
      EXPECT_EQ(met.size(), p - 1);
      for (const auto& [round, each] : partners) EXPECT_EQ(each.size(), 1u) << "round " << round;
    }
  }
}

TEST_P(Cost, OfAParameterServerIsARoundForEachWorker) {
  expect_cost(parameter_server(Collective::all_reduce, world), 2 * (p - 1), (p - 1) * n, p - 1);
  expect_cost(parameter_server(Collective::broadcast, world), p - 1, (p - 1) * n, p - 1);
  expect_cost(parameter_server(Collective::reduce, world), p - 1, n, 1);
  expect_cost(parameter_server(Collective::scatter, world), p - 1, (p - 1) * part, p - 1);
  expect_cost(parameter_server(Collective::gather, world), p - 1, part, 1);
}

TEST_P(Cost, OfBruckIsTheFewestMessages) {
  const Verdict gather = cost_of(bruck(Collective::all_gather, world));
  EXPECT_EQ(gather.rounds, log_p);
  EXPECT_EQ(gather.most_bytes_sent, (p - 1) * part);
  EXPECT_LE(gather.most_messages, 2 * log_p);  // parts may go around the end of the vector
  std::size_t moves = 0;                       // each part goes as often as its way has bits
  for (std::size_t distance = 1; distance < p; ++distance) moves += static_cast<std::size_t>(std::popcount(distance));
  expect_cost(bruck(Collective::all_to_all, world), log_p, moves * part, log_p);
}

TEST_P(Cost, OfAggregatedTreesIsTheFewestBytesAndMessages) {
  expect_cost(pat(Collective::all_gather, world), log_p, (p - 1) * part, log_p);
  expect_cost(pat(Collective::reduce_scatter, world), log_p, (p - 1) * part, log_p);
}

TEST_P(Cost, InScratchIsWhatTheDocumentsSay) {
  EXPECT_EQ(most_scratch(ring(Collective::all_reduce, world)), 0u);
  EXPECT_EQ(most_scratch(ring(Collective::all_gather, world)), 0u);
  EXPECT_EQ(most_scratch(ring(Collective::reduce_scatter, world)), (p - 2) * part);
  EXPECT_EQ(most_scratch(ring(Collective::broadcast, world)), 0u);
  EXPECT_EQ(most_scratch(ring(Collective::reduce, world)), p == 2 ? 0 : n);
  EXPECT_EQ(most_scratch(halving_doubling(Collective::all_reduce, world)), 0u);
  EXPECT_EQ(most_scratch(halving_doubling(Collective::reduce_scatter, world)), p == 2 ? 0 : (p + 1) / 2 * part);
  EXPECT_EQ(most_scratch(binomial_tree(Collective::all_reduce, world)), 0u);
  EXPECT_EQ(most_scratch(binomial_tree(Collective::reduce, world)), p <= 3 ? 0 : n);
  EXPECT_EQ(most_scratch(one_round(world)), p == 2 ? 0 : n);
  EXPECT_EQ(most_scratch(bruck(Collective::all_gather, world)), 0u);
  EXPECT_LE(most_scratch(bruck(Collective::all_to_all, world)), (1 + log_p) * (p / 2) * part);
  EXPECT_EQ(most_scratch(pat(Collective::all_gather, world)), p <= 3 ? 0 : p / 2 * 2 * part);
  EXPECT_LT(most_scratch(pat(Collective::reduce_scatter, world)), 2 * n);
  EXPECT_EQ(most_scratch(bidirectional_ring(Collective::all_reduce, world)), 0u);
  EXPECT_EQ(most_scratch(bidirectional_ring(Collective::reduce_scatter, world)), p <= 3 ? 0 : (p - 3) * part);
  EXPECT_LE(most_scratch(recursive_doubling(Collective::all_reduce, world)), 2 * n);
  EXPECT_EQ(most_scratch(swing(Collective::all_reduce, world)), 0u);
  if (std::has_single_bit(p))
    EXPECT_EQ(most_scratch(swing(Collective::reduce_scatter, world)), p == 2 ? 0 : n / 2);
  else
    EXPECT_LT(most_scratch(swing(Collective::reduce_scatter, world)), n);
  EXPECT_EQ(most_scratch(double_binary_tree(Collective::all_reduce, world)), 0u);
  EXPECT_EQ(most_scratch(double_binary_tree(Collective::reduce, world)), p == 2 ? 0 : n / 2);
  EXPECT_EQ(most_scratch(bine_tree(Collective::reduce, world)), p <= 3 ? 0 : n);
  for (const auto& grid : {multi_dimensional(Collective::all_reduce, world), torus(Collective::all_reduce, world),
                           mesh(Collective::all_reduce, world), hierarchical(Collective::all_reduce, world)})
    EXPECT_EQ(most_scratch(grid), 0u) << name(grid);
  const auto smaller = [&] {
    std::size_t divisor = 1;
    for (std::size_t d = 1; d * d <= p; ++d)
      if (p % d == 0) divisor = d;
    return divisor;
  }();
  EXPECT_EQ(most_scratch(multi_dimensional(Collective::reduce_scatter, world)), smaller == 1 ? 0 : n / smaller);
  EXPECT_EQ(most_scratch(hierarchical(Collective::reduce_scatter, world)), smaller == 1 ? 0 : n / (p / smaller));
  EXPECT_EQ(most_scratch(hierarchical(Collective::all_gather, world)), 0u);
  EXPECT_LT(most_scratch(torus(Collective::reduce_scatter, world)), n);
  EXPECT_LE(most_scratch(mesh(Collective::reduce_scatter, world)), n);
  for (const auto& without :
       {round_robin(Collective::reduce_scatter, world), parameter_server(Collective::reduce, world)})
    EXPECT_EQ(most_scratch(without), 0u) << name(without);
  for (const Collective collective : algorithms()[3].collectives) {
    ASSERT_EQ(algorithms()[3].name, "direct");
    EXPECT_EQ(most_scratch(direct(collective, world)), 0u) << name_of(collective);
  }
}

// N nodes, the last of which has fewer ranks than the m of the others, so that a leader speaks for each.
TEST(HierarchicalCost, OfUnevenNodesIsThatOfLeaders) {
  // Three nodes of 3, 3 and 1 ranks: a leader sends 2/3 of the vector twice between nodes and all of it twice inside.
  expect_cost(hierarchical(Collective::all_reduce, 7, 3), 2 * 2 + 2 * 1, 2 * 2 * 7 * part / 3 + 2 * 7 * part,
              2 * 2 + 2);
  for (const auto& [p, m] : {std::pair{7u, 3u}, {9u, 4u}, {11u, 4u}, {14u, 4u}, {13u, 6u}, {22u, 5u}}) {
    const auto world = static_cast<Rank>(p), per_node = static_cast<Rank>(m);
    const std::size_t nodes = (p + m - 1) / m, n = p * part, log_m = std::bit_width(m - 1);
    SCOPED_TRACE(testing::Message() << p << " ranks, " << m << " in a node");
    const Verdict sums = cost_of(hierarchical(Collective::all_reduce, world, per_node));
    EXPECT_EQ(sums.rounds, 2 * log_m + 2 * (nodes / 2));
    const auto bytes = static_cast<double>(log_m * n + 2 * (nodes - 1) * n / nodes);
    EXPECT_NEAR(static_cast<double>(sums.most_bytes_sent), bytes, 16)
        << "but for elements that nodes cannot share evenly";
    EXPECT_EQ(sums.most_messages, 2 * (nodes - 1) + log_m);
    const Verdict scattered = cost_of(hierarchical(Collective::reduce_scatter, world, per_node));
    EXPECT_EQ(scattered.rounds, log_m + nodes / 2 + 1);
    EXPECT_EQ(scattered.most_bytes_sent, n);
    EXPECT_EQ(scattered.most_messages, nodes - 1 + m - 1);
    EXPECT_EQ(most_scratch(hierarchical(Collective::reduce_scatter, world, per_node)), n);
    const Verdict gathered = cost_of(hierarchical(Collective::all_gather, world, per_node));
    EXPECT_EQ(gathered.rounds, 1 + nodes / 2 + log_m);
    EXPECT_EQ(gathered.most_bytes_sent, log_m * n + n - p % m * part);
    EXPECT_EQ(gathered.most_messages, nodes - 1 + log_m);
    EXPECT_EQ(most_scratch(hierarchical(Collective::all_gather, world, per_node)), 0u);
  }
}

}  // namespace
}  // namespace ranvier
