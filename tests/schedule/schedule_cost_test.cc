// What the model counts on a schedule is what the compiled programs do.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "ranvier/cost.h"
#include "ranvier/schedule.h"

namespace ranvier {
namespace {

constexpr std::size_t element = 4;
constexpr std::size_t part_bytes = 40 * element;  // bytes of a chunk, or of a rank's part

std::size_t vector_bytes(const Schedule& schedule) { return part_bytes * schedule.chunks; }

// The most that a rank sends or receives, and how often, compiled.
RankCost compiled_busiest(const Schedule& schedule, std::size_t slice_bytes) {
  RankCost most;
  const std::size_t count = part_bytes / element * (moves_whole_vector(schedule.collective) ? schedule.chunks : 1);
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
        for (const std::size_t slice : {std::size_t{1} << 20, part_bytes, part_bytes / 4}) {
          const RankCost expected = compiled_busiest(schedule, slice);
          const RankCost found = cost.busiest(vector_bytes(schedule), slice);
          EXPECT_DOUBLE_EQ(found.bytes, expected.bytes)
              << name_of(collective) << " by " << spec_text(spec) << " of " << world;
          EXPECT_DOUBLE_EQ(found.messages, expected.messages)
              << name_of(collective) << " by " << spec_text(spec) << " of " << world << ", slices of " << slice;
        }
      }
}

TEST(ScheduleCost, AddsUpWhatEveryReductionMust) {
  // Each of p chunks is added p - 1 times, and nothing can be added less often.
  for (const Rank world : {2, 3, 8, 12}) {
    const double n = 4096.0 * world;
    for (const auto* const name : {"ring", "direct", "bidirectional_ring", "hierarchical"}) {
      const ScheduleCost cost(find_algorithm(name, Collective::reduce_scatter)
                                  .build({.collective = Collective::reduce_scatter, .world = world}));
      EXPECT_DOUBLE_EQ(cost.shared(static_cast<std::size_t>(n), 1 << 20).reduced, n * (world - 1) / world) << name;
    }
  }
}

TEST(ScheduleCost, IsSharedByAllRanksButForTheBusiest) {
  const ScheduleCost tree(binomial_tree(Collective::all_reduce, 4));
  EXPECT_DOUBLE_EQ(tree.busiest(1000, 1 << 20).bytes, 2000);
  EXPECT_DOUBLE_EQ(tree.shared(1000, 1 << 20).bytes, 1500 + 0.4 * 500) << "two up and two down for each pair of ranks";
  EXPECT_DOUBLE_EQ(tree.shared(1000, 1 << 20).messages, 1.5);
  const ScheduleCost star(direct(Collective::broadcast, 8));
  EXPECT_DOUBLE_EQ(star.busiest(1000, 1 << 20).bytes, 7000);
  EXPECT_DOUBLE_EQ(star.shared(1000, 1 << 20).bytes, 875 + 0.4 * 2625) << "a root that only sends does half";
}

TEST(ScheduleCost, WaitsForTheBusiestWhereLargeVectorsShareCores) {
  const LinkModel crowded{.latency = 0.5e-6, .message = 6.5e-6, .byte = 0.6e-9, .reduce = 0.15e-9, .crowded = true};
  const ScheduleCost server(parameter_server(Collective::all_reduce, 4));
  const ScheduleCost halving(halving_doubling(Collective::all_reduce, 4));
  EXPECT_LT(predict(crowded, server, 4096, 1 << 20), predict(crowded, halving, 4096, 1 << 20));
  EXPECT_GT(predict(crowded, server, 1 << 20, 1 << 20), 1.2 * predict(crowded, halving, 1 << 20, 1 << 20));
}

TEST(ScheduleCost, OfAChainIsEverythingThatItsMessagesCarryUpToASlice) {
  const ScheduleCost tree(binomial_tree(Collective::all_reduce, 8));
  EXPECT_DOUBLE_EQ(tree.path_bytes(1000, 1 << 20), 6000);
  EXPECT_DOUBLE_EQ(tree.path_bytes(1000, 100), 600) << "slices follow one another";
  EXPECT_DOUBLE_EQ(ScheduleCost(ring(Collective::all_reduce, 8)).path_bytes(1000, 1 << 20), 1750);
  EXPECT_DOUBLE_EQ(ScheduleCost(halving_doubling(Collective::all_reduce, 8)).path_bytes(1000, 1 << 20), 1750);
  EXPECT_DOUBLE_EQ(ScheduleCost(direct(Collective::all_reduce, 8)).path_bytes(1000, 1 << 20), 250);
  EXPECT_DOUBLE_EQ(predict({.byte = 1}, tree, 1000, 1 << 20), 6000);
  EXPECT_DOUBLE_EQ(predict({.byte = 1, .crowded = true}, tree, 1000, 1 << 20), 3000);
}

TEST(ScheduleCost, CountsFromHowManyOthersOneReceives) {
  EXPECT_EQ(ScheduleCost(ring(Collective::all_reduce, 8)).partners(), 1U);
  EXPECT_EQ(ScheduleCost(halving_doubling(Collective::all_reduce, 8)).partners(), 3U);
  EXPECT_EQ(ScheduleCost(direct(Collective::all_reduce, 8)).partners(), 7U);
  EXPECT_DOUBLE_EQ(predict({.byte = 1, .partner = 0.5}, ScheduleCost(direct(Collective::all_reduce, 8)), 800, 1 << 20),
                   (1 + 6 * 0.5) * 1400);
}

// As the papers count rounds; a parameter server serves one rank a round, but nobody waits for more than two messages.
TEST(ScheduleCost, CountsWhatANodeExchangesWithOthers) {
  const auto between = [](const Schedule& schedule) { return ScheduleCost(schedule, 4).between_nodes(800); };
  EXPECT_DOUBLE_EQ(between(ring(Collective::all_reduce, 8)), 1400) << "all that goes over one of its links";
  EXPECT_DOUBLE_EQ(between(direct(Collective::all_reduce, 8)), 3200) << "four ranks to four others, a part each, twice";
  EXPECT_DOUBLE_EQ(between(hierarchical(Collective::all_reduce, 8, 4)), 800);
  EXPECT_DOUBLE_EQ(between(hierarchical(Collective::all_reduce, 128, 4)), 2 * 31 * 800 / 32.0) << "of the first node";
  EXPECT_EQ(ScheduleCost(hierarchical(Collective::all_reduce, 8, 4), 4).distant_partners(), 1U);
  EXPECT_EQ(ScheduleCost(direct(Collective::all_reduce, 8), 4).distant_partners(), 4U);
  EXPECT_DOUBLE_EQ(between(direct(Collective::all_gather, 6)), 800 / 6.0 * 8) << "of whom the last node has two ranks";
  EXPECT_FALSE(ScheduleCost(ring(Collective::all_reduce, 8)).knows_nodes());
  const LinkModel links{.byte = 1, .between = 10};
  EXPECT_DOUBLE_EQ(predict(links, ScheduleCost(ring(Collective::all_reduce, 8), 4), 800, 1 << 20), 1400 + 14000);
  EXPECT_DOUBLE_EQ(predict(links, ScheduleCost(ring(Collective::all_reduce, 8)), 800, 1 << 20), 1400 + 14000)
      << "who stands with whom is not known: as if nobody did";
}

TEST(ScheduleCost, IsAsDeepAsMessagesFollowOneAnother) {
  for (const Rank world : {2, 3, 4, 8, 12, 16, 64}) {
    const auto ranks = static_cast<std::uint32_t>(world);
    const std::uint32_t log2 = std::bit_width(ranks - 1);
    EXPECT_EQ(ScheduleCost(ring(Collective::all_reduce, world)).depth(), 2 * (ranks - 1));
    EXPECT_EQ(ScheduleCost(ring(Collective::all_gather, world)).depth(), ranks - 1);
    // Whose ranks are no power of two leaves some chains shorter.
    const bool whole = std::has_single_bit(ranks);
    const std::uint32_t butterfly = ScheduleCost(halving_doubling(Collective::all_reduce, world)).depth();
    const std::uint32_t tree = ScheduleCost(binomial_tree(Collective::broadcast, world)).depth();
    EXPECT_TRUE(whole ? butterfly == 2 * log2 : butterfly <= 2 * log2) << butterfly;
    EXPECT_TRUE(whole ? tree == log2 : tree <= log2) << tree;
    EXPECT_EQ(ScheduleCost(one_round(world)).depth(), 1U);
    EXPECT_EQ(ScheduleCost(direct(Collective::all_reduce, world)).depth(), 2U);
    EXPECT_EQ(ScheduleCost(parameter_server(Collective::all_reduce, world)).depth(), 2U);
    EXPECT_EQ(ScheduleCost(round_robin(Collective::all_to_all, world)).depth(), 1U);
    EXPECT_LE(ScheduleCost(bruck(Collective::all_to_all, world)).depth(), log2);
    // Whose parts come into scratch, from where they are copied in the round in which they came.
    if (whole) {
      EXPECT_EQ(ScheduleCost(pat(Collective::all_gather, world)).depth(), log2);
    }
  }
}

TEST(ScheduleCost, IsFoundForEveryCandidateOfEveryWorld) {
  for (const Collective collective : all_collectives)
    for (const Rank world : {1, 2, 3, 4, 5, 6, 7, 8, 12, 15, 16, 24})
      for (const AlgorithmSpec& spec : candidates(collective, world)) {
        const Schedule schedule = spec.algorithm().build({.collective = collective, .world = world, .dims = spec.dims});
        const bool whole = moves_whole_vector(collective);
        const std::uint32_t rounds = verify(schedule, {.count = whole ? schedule.chunks : 1u}).rounds;
        const std::uint32_t depth = ScheduleCost(schedule).depth();
        EXPECT_LE(depth, rounds) << name_of(collective) << " by " << spec_text(spec) << " of " << world;
        EXPECT_EQ(depth > 0, world > 1) << name_of(collective) << " by " << spec_text(spec) << " of " << world;
      }
}

TEST(ScheduleCost, OfALargeWorldLooksAtAFewRanks) {
  const ScheduleCost cost(ring(Collective::all_gather, 100'000));
  EXPECT_EQ(cost.depth(), 99'999U);
  EXPECT_DOUBLE_EQ(cost.busiest(400'000, 1 << 20).bytes, 399'996);
  // The root, which may have most to do, is one of them, whoever it is; and so is its host.
  for (const Rank root : {0, 5, 71}) {
    const ScheduleCost star(direct(Collective::broadcast, 72, root), 8);
    EXPECT_DOUBLE_EQ(star.busiest(1000, 1 << 20).bytes, 71'000) << root;
    EXPECT_DOUBLE_EQ(star.between_nodes(1000), 64'000) << root;
  }
}

TEST(LinkModel, PredictsTheSumOfItsTerms) {
  const ScheduleCost cost(ring(Collective::all_reduce, 4));
  LinkModel links{.latency = 1, .message = 100, .byte = 1e-4, .reduce = 1e-2};
  // 6 messages of 1000 bytes, each after the other, 3 of them added up.
  EXPECT_DOUBLE_EQ(predict(links, cost, 4000, 1 << 20), 6 + 600 + 0.6 + 30);
  links.crowded = true;
  EXPECT_DOUBLE_EQ(predict(links, cost, 4000, 1 << 20), 6 + 600 + 0.6 + 30) << "every rank of a ring does the same";
}

TEST(Slices, AreWhatASlowLinkCarriesInAMillisecond) {
  constexpr std::size_t most = 512 << 10;
  const auto seconds_per_byte = [](double bits_per_second) { return 8 / bits_per_second; };
  EXPECT_EQ(slice_for(seconds_per_byte(100e9), most), most);
  EXPECT_EQ(slice_for(seconds_per_byte(5e9), most), most);
  EXPECT_EQ(slice_for(seconds_per_byte(4e9), most), 256U << 10);
  EXPECT_EQ(slice_for(seconds_per_byte(1e9), most), 64U << 10);
  EXPECT_EQ(slice_for(seconds_per_byte(100e6), most), 16U << 10) << "not worth a call of the kernel";
  EXPECT_EQ(slice_for(seconds_per_byte(100e6), 4 << 10), 4U << 10) << "what the transport takes";
  EXPECT_EQ(slice_for(0, most), most) << "nothing was measured";
}

TEST(Slices, AreAheadByWhatALineCarriesWhileARankIsLateAndByMoreOnALongPath) {
  constexpr std::size_t most = 512 << 10;
  EXPECT_EQ(ahead_for(100e-6, 8 / 200e6, most), 250'000U);
  EXPECT_EQ(ahead_for(100e-6, 8 / 10e9, most), most) << "one slice, as there was";
  EXPECT_EQ(ahead_for(100e-6, 0, most), most) << "nothing was measured";
  EXPECT_GT(ahead_for(20e-3, 8 / 200e6, most), std::size_t{16} << 20);
  EXPECT_GT(ahead_for(20e-3, 0, most), 1U << 30) << "nothing was measured";
  EXPECT_LT(ahead_for(1.1e-3, 8 / 100e6, most), 2 * ahead_for(1e-3, 8 / 100e6, most)) << "cores that were busy";
}

TEST(Slices, LeadByWhatAQueueHoldsAndALongPathTakes) {
  EXPECT_EQ(lead_for(0, 8 / 200e6), 250'000U);
  EXPECT_EQ(lead_for(20e-3, 8 / 200e6), 250'000U + 1'000'000U);
  EXPECT_LT(lead_for(10e-3, 8 / 100e6), 100e6 / 8 * 0.05) << "cores that were busy: a queue of 50 ms";
  EXPECT_EQ(lead_for(20e-3, 0), 0U) << "nothing was measured";
}

}  // namespace
}  // namespace ranvier
