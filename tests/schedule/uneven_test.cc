// Parts that differ from rank to rank, some of them empty.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <vector>

#include "schedule/every_schedule.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

// Elements of every rank's part.
using Parts = std::vector<std::size_t>;

// Slices of two elements: parts of none, of one slice and of several.
constexpr std::size_t two_elements = 8;
std::size_t part_between(Rank from, Rank to) { return static_cast<std::size_t>((from * 7 + to * 5) % 4 * 3 % 8); }

Parts parts_of(Rank world) {
  Parts parts;
  for (Rank rank = 0; rank < world; ++rank) parts.push_back(part_between(rank, 1));
  return parts;
}

std::size_t sum(const Parts& parts) { return std::accumulate(parts.begin(), parts.end(), std::size_t{0}); }

std::vector<Extent> extents(const Parts& parts) {
  std::vector<Extent> result;
  std::size_t offset = 0;
  for (const std::size_t elements : parts) {
    result.push_back({offset, elements * verified_element_bytes});
    offset += result.back().bytes;
  }
  return result;
}

// Every rank knows all parts' sizes.
Layout layout(const Schedule& schedule, Rank rank, const Parts& parts) {
  const std::vector<Extent> all = extents(parts);
  const std::vector<Extent> own = extents({parts[static_cast<std::size_t>(rank)]});
  Layout result;
  switch (schedule.collective) {
    case Collective::all_gather:
      return {.input = own, .output = all};
    case Collective::reduce_scatter:
      return {.input = all, .output = own};
    case Collective::gather:
      result.input = own;
      if (rank == schedule.root) result.output = all;
      break;
    case Collective::scatter:
      if (rank == schedule.root) result.input = all;
      result.output = own;
      break;
    default: {
      Parts sent, received;
      for (Rank peer = 0; peer < schedule.world; ++peer) {
        sent.push_back(part_between(rank, peer));
        received.push_back(part_between(peer, rank));
      }
      return {.input = extents(sent), .output = extents(received)};
    }
  }
  for (const Extent& each : all) result.parts.push_back(each.bytes);
  return result;
}

struct CompiledParts {
  std::vector<Layout> layouts;
  std::vector<Program> programs;
};

CompiledParts compiled(const Schedule& schedule, const Parts& parts, bool in_place = false) {
  CompiledParts all;
  for (Rank rank = 0; rank < schedule.world; ++rank) {
    all.layouts.push_back(layout(schedule, rank, parts));
    all.programs.push_back(
        compile(schedule, rank, all.layouts.back(),
                {.element_bytes = verified_element_bytes, .slice_bytes = two_elements, .in_place = in_place}));
  }
  return all;
}

Verdict expect_proven(const Schedule& schedule, const Parts& parts, bool in_place) {
  const CompiledParts all = compiled(schedule, parts, in_place);
  const VerifyOptions options{.slice_bytes = two_elements, .in_place = in_place};
  Verdict verdict = verify(schedule, all.layouts, all.programs, options);
  EXPECT_TRUE(verdict.ok) << name(schedule) << ", " << name(options) << ": " << verdict.problem;
  return verdict;
}

// But for 1000 ranks, which only some can be proven for.
std::vector<Rank> every_world() {
  std::vector<Rank> worlds(support::sanitized ? 16 : 64);
  std::iota(worlds.begin(), worlds.end(), 1);
  if (support::sanitized)
    worlds.push_back(33);
  else
    worlds.insert(worlds.end(), {96, 128, 192});
  return worlds;
}

// But neighbour exchange, whose parts are by direction: neighbor_exchange_test.cc.
bool serves_uneven_parts(const Schedule& schedule) {
  return schedule.collective != Collective::neighbor_exchange && !moves_whole_vector(schedule.collective) &&
         find_algorithm(schedule.algorithm, schedule.collective).uneven;
}

// Of gather and scatter, all that pass on what is others'.
template <class Visit>
void for_each_tree(Rank world, Rank root, Visit visit) {
  for (const Collective collective : {Collective::gather, Collective::scatter}) {
    visit(binomial_tree(collective, world, root));
    visit(bine_tree(collective, world, root));
  }
}

class UnevenSplits : public testing::TestWithParam<Rank> {
 protected:
  Rank world() const { return GetParam(); }
};

INSTANTIATE_TEST_SUITE_P(SomeWorlds, UnevenSplits, testing::Values(1, 2, 3, 4, 5, 6, 8, 11, 16));

TEST_P(UnevenSplits, AreServedByNodesOfAnySize) {
  for (Rank per_node = 1; per_node <= world(); ++per_node)
    for (const Collective collective : {Collective::reduce_scatter, Collective::all_gather})
      for (const bool in_place : {false, true})
        expect_proven(hierarchical(collective, world(), per_node), parts_of(world()), in_place);
}

// Nodes of any size included.
TEST(UnevenSplitsOfEveryWorld, AreServedByAllThatSaySo) {
  for (const Rank world : every_world())
    for_each_shape(world, world / 2, [&](const Schedule& schedule) {
      if (!serves_uneven_parts(schedule)) return;
      for (const bool in_place : {false, true}) {
        if (in_place && schedule.collective == Collective::all_to_all) continue;
        expect_proven(schedule, parts_of(world), in_place);
      }
    });
}

TEST_P(UnevenSplits, OfEveryRootAreServedByTrees) {
  for (Rank root = 0; root < world(); ++root)
    for_each_tree(world(), root, [&](const Schedule& schedule) {
      for (const bool in_place : {false, true}) expect_proven(schedule, parts_of(world()), in_place);
    });
}

// Nobody has anything; one rank has all; all but one have some.
TEST_P(UnevenSplits, OfNothingAndOfOneRankAreServedByTrees) {
  const auto ranks = static_cast<std::size_t>(world());
  for (std::size_t one = 0; one < ranks; ++one) {
    Parts all_of_one(ranks, 0), none_of_one(ranks, 3);
    all_of_one[one] = 7;
    none_of_one[one] = 0;
    for_each_tree(world(), world() / 3, [&](const Schedule& schedule) {
      for (const bool in_place : {false, true})
        for (const Parts& parts : {Parts(ranks, 0), all_of_one, none_of_one}) expect_proven(schedule, parts, in_place);
    });
  }
}

TEST(UnevenTrees, ServeEveryWorld) {
  std::vector<Rank> worlds = every_world();
  if (!support::sanitized) worlds.push_back(1000);
  for (const Rank world : worlds)
    for_each_tree(world, world / 3, [&](const Schedule& schedule) {
      for (const bool in_place : {false, true}) expect_proven(schedule, parts_of(world), in_place);
    });
}

// As docs/algorithms.md says: what a tree moves is what stands below, whoever has how much of it.
TEST(UnevenTrees, CostWhatStandsBelow) {
  for (const Rank world : {2, 3, 4, 5, 7, 8, 13, 16, 17, 32})
    for_each_tree(world, 0, [&](const Schedule& schedule) {
      SCOPED_TRACE(name(schedule));
      const Parts parts = parts_of(world);
      const std::size_t all = sum(parts) * verified_element_bytes;
      const std::size_t log = std::bit_width(static_cast<std::size_t>(world) - 1);
      const Verdict cost = expect_proven(schedule, parts, false);
      EXPECT_EQ(cost.rounds, log);
      EXPECT_LE(cost.most_messages, 2 * (schedule.collective == Collective::gather ? 1 : log));
      const std::size_t of_others = all - parts[0] * verified_element_bytes;
      const auto programs = compiled(schedule, parts).programs;
      const bool gathers = schedule.collective == Collective::gather;
      const auto moved = [](const std::vector<std::pair<Rank, std::size_t>>& links) {
        std::size_t bytes = 0;
        for (const auto& [peer, each] : links) bytes += each;
        return bytes;
      };
      EXPECT_EQ(moved(gathers ? programs[0].bytes_from : programs[0].bytes_to), of_others);
      EXPECT_EQ(programs[0].scratch_bytes, 0u);
      for (std::size_t rank = 1; rank < programs.size(); ++rank) {
        const std::size_t below = moved(gathers ? programs[rank].bytes_from : programs[rank].bytes_to);
        const std::size_t subtree = moved(gathers ? programs[rank].bytes_to : programs[rank].bytes_from);
        const bool is_leaf = (gathers ? programs[rank].bytes_from : programs[rank].bytes_to).empty();
        EXPECT_EQ(subtree, below + parts[rank] * verified_element_bytes);
        EXPECT_EQ(programs[rank].scratch_bytes, is_leaf ? 0 : subtree);
      }
    });
}

}  // namespace
}  // namespace ranvier
