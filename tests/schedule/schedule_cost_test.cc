// What the model counts on a schedule is what the compiled programs do.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "ranvier/cost.h"
#include "ranvier/schedule.h"

namespace ranvier {
namespace {

constexpr std::size_t element = 4;
constexpr std::size_t part = 40 * element;  // bytes of a chunk, or of a rank's part

std::size_t vector_bytes(const Schedule& schedule) { return part * schedule.chunks; }

// The most that a rank sends or receives, and how often, compiled.
RankCost compiled_busiest(const Schedule& schedule, std::size_t slice_bytes) {
  RankCost most;
  const bool whole = schedule.collective == Collective::all_reduce || schedule.collective == Collective::reduce ||
                     schedule.collective == Collective::broadcast;
  const std::size_t count = part / element * (whole ? schedule.chunks : 1);
  for (Rank rank = 0; rank < schedule.world; ++rank) {
    const Program program = compile(schedule, rank, even_layout(schedule, rank, count, element),
                                    {.element_bytes = element, .slice_bytes = slice_bytes});
    const auto add = [&](const std::vector<Instruction>& all) {
      RankCost own;
      for (const Instruction& each : all) {
        if (each.action == Action::copy || each.action == Action::reduce) continue;
        ++own.messages;
        own.bytes += static_cast<double>(each.bytes);
      }
      most.messages = std::max(most.messages, own.messages);
      most.bytes = std::max(most.bytes, own.bytes);
    };
    add(program.sends);
    add(program.receives);
  }
  return most;
}

TEST(ScheduleCost, CountsWhatProgramsDo) {
  for (const Collective collective :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather, Collective::broadcast,
        Collective::reduce, Collective::gather, Collective::scatter, Collective::all_to_all})
    for (const Rank world : {1, 2, 3, 4, 6, 8, 13, 16})
      for (const AlgorithmSpec& spec : candidates(collective, world)) {
        const Schedule schedule = spec.algorithm().build({.collective = collective, .world = world, .dims = spec.dims});
        const ScheduleCost cost(schedule);
        for (const std::size_t slice : {std::size_t{1} << 20, part, part / 4}) {
          const RankCost expected = compiled_busiest(schedule, slice);
          const RankCost found = cost.busiest(vector_bytes(schedule), slice);
          EXPECT_DOUBLE_EQ(found.bytes, expected.bytes)
              << name_of(collective) << " by " << spec_text(spec) << " of " << world;
          EXPECT_DOUBLE_EQ(found.messages, expected.messages)
              << name_of(collective) << " by " << spec_text(spec) << " of " << world << ", slices of " << slice;
        }
        if (world > 8) continue;  // a proof takes the cube of the world
        EXPECT_EQ(cost.rounds(), verify(schedule).rounds) << spec_text(spec) << " of " << world;
      }
}

TEST(ScheduleCost, AddsUpWhatEveryReductionMust) {
  // Each of p chunks is added p - 1 times, and nothing can be added less often.
  for (const Rank world : {2, 3, 8, 12}) {
    const double n = 4096.0 * world;
    for (const auto* const name : {"ring", "direct", "bidirectional_ring", "hierarchical"}) {
      const ScheduleCost cost(find_algorithm(name, Collective::reduce_scatter)
                                  .build({.collective = Collective::reduce_scatter, .world = world}));
      EXPECT_DOUBLE_EQ(cost.mean(static_cast<std::size_t>(n), 1 << 20).reduced, n * (world - 1) / world) << name;
    }
  }
}

TEST(ScheduleCost, OfAMeanCountsEveryTransferOnce) {
  const ScheduleCost cost(direct(Collective::broadcast, 4));
  EXPECT_DOUBLE_EQ(cost.busiest(1000, 1 << 20).bytes, 3000);
  EXPECT_DOUBLE_EQ(cost.mean(1000, 1 << 20).bytes, 750);
  EXPECT_DOUBLE_EQ(cost.mean(1000, 1 << 20).messages, 0.75);
}

TEST(ScheduleCost, OfALargeWorldLooksAtAFewRanks) {
  const ScheduleCost cost(ring(Collective::all_gather, 100'000));
  EXPECT_EQ(cost.rounds(), 99'999U);
  EXPECT_DOUBLE_EQ(cost.busiest(400'000, 1 << 20).bytes, 399'996);
}

TEST(LinkModel, PredictsTheSumOfItsTerms) {
  const ScheduleCost cost(ring(Collective::all_reduce, 4));
  LinkModel links{.round = 1, .message = 100, .byte = 1e-4, .reduce = 1e-2};
  // 6 rounds, 6 messages of 1000 bytes, 3 of them added up.
  EXPECT_DOUBLE_EQ(predict(links, cost, 4000, 1 << 20), 6 + 600 + 0.6 + 30);
  links.crowded = true;
  EXPECT_DOUBLE_EQ(predict(links, cost, 4000, 1 << 20), 6 + 600 + 0.6 + 30) << "every rank of a ring does the same";
  const ScheduleCost tree(direct(Collective::broadcast, 4));
  EXPECT_DOUBLE_EQ(predict({.message = 1}, tree, 4000, 1 << 20), 3);
  EXPECT_DOUBLE_EQ(predict({.message = 1, .crowded = true}, tree, 4000, 1 << 20), 0.75);
}

}  // namespace
}  // namespace ranvier
