// What can be proven of the contention that is reported, in every world of which schedules are.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ranvier/topology.h"
#include "schedule/every_schedule.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

std::vector<Rank> worlds() {
  std::vector<Rank> all;
  for (Rank world = 1; world <= (support::sanitized ? 16 : 64); ++world) all.push_back(world);
  if (!support::sanitized) all.insert(all.end(), {96, 128, 192, 1000});
  return all;
}

// As even as they can be.
std::vector<Rank> two_dimensions(Rank world) {
  Rank rows = 1;
  for (Rank size = 1; size <= world / size; ++size)
    if (world % size == 0) rows = size;
  return {rows, world / rows};
}

// Whose links join ranks, without a switch.
std::vector<Topology> direct_networks(Rank world) {
  return {topology::ring(world), topology::mesh({world}), topology::mesh(two_dimensions(world)),
          topology::torus(two_dimensions(world))};
}

// Of what all ranks send in each round: between how many pairs, from or to one rank at most, and from the lower half of
// the ranks to the upper one or back.
struct Round {
  std::uint32_t pairs = 0, of_one = 0, across = 0;
};
std::vector<Round> rounds_of(const Schedule& schedule) {
  std::map<std::uint32_t, std::vector<std::pair<Rank, Rank>>> sent;
  for (Rank rank = 0; rank < schedule.world; ++rank)
    for (const Step& step : schedule.program(rank))
      if (step.action == Action::send) sent[step.round].emplace_back(rank, step.peer);
  std::vector<Round> rounds;
  for (auto& [number, pairs] : sent) {
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    const auto world = static_cast<std::size_t>(schedule.world);
    std::vector<std::uint32_t> from(world), to(world);
    std::uint32_t up = 0, down = 0;
    for (const auto& [sender, receiver] : pairs) {
      ++from[static_cast<std::size_t>(sender)];
      ++to[static_cast<std::size_t>(receiver)];
      up += sender < schedule.world / 2 && receiver >= schedule.world / 2 ? 1 : 0;
      down += sender >= schedule.world / 2 && receiver < schedule.world / 2 ? 1 : 0;
    }
    rounds.push_back(
        {.pairs = static_cast<std::uint32_t>(pairs.size()),
         .of_one = std::max(*std::max_element(from.begin(), from.end()), *std::max_element(to.begin(), to.end())),
         .across = std::max(up, down)});
  }
  return rounds;
}
std::uint32_t most(const std::vector<Round>& rounds, std::uint32_t Round::*count) {
  std::uint32_t result = 0;
  for (const Round& round : rounds) result = std::max(result, round.*count);
  return result;
}

// Links that lead from the lower half of the ranks to the upper one; as many lead back.
std::uint32_t width(const Topology& topology) {
  return static_cast<std::uint32_t>(
      std::count_if(topology.links.begin(), topology.links.end(),
                    [half = topology.world / 2](const Link& link) { return link.from < half && link.to >= half; }));
}

class EveryWorld : public testing::TestWithParam<Rank> {
 protected:
  static constexpr Rank most_shapes = 192;

  // Of a thousand ranks no schedule of a million messages, which all ring-like ones have.
  template <class Visit>
  void for_each(Visit visit) const {
    const Rank world = GetParam();
    if (world <= most_shapes) return for_each_shape(world, world / 3, visit);
    for_each_schedule(world, world / 3, [&](const Schedule& schedule) {
      if (schedule.program(1).size() < 300) visit(schedule);
    });
  }
  std::vector<Collective> ring_collectives() const {
    if (GetParam() > most_shapes) return {Collective::all_gather};
    return {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather};
  }
};
INSTANTIATE_TEST_SUITE_P(, EveryWorld, testing::ValuesIn(worlds()), testing::PrintToStringParamName());

// A link of a star is a rank's: what that rank sends, or receives, at once. A fat tree has the same links at its ranks.
TEST_P(EveryWorld, ContendsOnAStarForWhatOneRankHasAtOnceAndOnAFatTreeForNoLess) {
  const Topology star = topology::star(GetParam());
  const Topology tree = topology::fat_tree(GetParam(), 4), narrow = topology::fat_tree(GetParam(), 4, 2);
  for_each([&](const Schedule& schedule) {
    SCOPED_TRACE(name(schedule));
    const auto rounds = rounds_of(schedule);
    const Contention found = contention(schedule, star);
    EXPECT_EQ(found.most_transfers, most(rounds, &Round::of_one));
    const Contention wide = contention(schedule, tree), less = contention(schedule, narrow);
    for (const Contention* const each : {&wide, &less}) {
      EXPECT_GE(each->most_transfers, found.most_transfers);
      EXPECT_LE(each->most_transfers, most(rounds, &Round::pairs));
      EXPECT_GE(each->load_by_rounds + 1e-9, found.load_by_rounds);
      EXPECT_GE(each->traffic + 1e-9, found.traffic);
      EXPECT_GE(each->load_by_rounds + 1e-9, each->busiest_load);
    }
    EXPECT_DOUBLE_EQ(wide.traffic, less.traffic) << "both ways are as long";
  });
}

// Where nobody forwards, a link carries what its two ends send each other; and what crosses the middle of a network has
// the links there to do so.
TEST_P(EveryWorld, ContendsForNoLinkThatOnlyItsEndsUseAndForThoseInTheMiddleAtLeastByTheirNumber) {
  const auto networks = direct_networks(GetParam());
  for_each([&](const Schedule& schedule) {
    const auto rounds = rounds_of(schedule);
    for (const Topology& network : networks) {
      SCOPED_TRACE(name(schedule) + " on " + network.name);
      const Contention found = contention(schedule, network);
      EXPECT_LE(found.most_transfers, most(rounds, &Round::pairs));
      EXPECT_GE(found.load_by_rounds + 1e-9, found.busiest_load);
      if (missing_link(schedule, network).empty()) {
        EXPECT_EQ(found.most_transfers, rounds.empty() ? 0U : 1U);
      }
      if (const std::uint32_t links = width(network); links > 0) {
        EXPECT_GE(found.most_transfers, (most(rounds, &Round::across) + links - 1) / links);
      }
    }
  });
}

// Everybody sends to the next rank, the last one to the first. On a tree no more than one of these leaves a subtree,
// and one enters it, however narrow it is; on a grid rows lead to the next one through its first column.
TEST_P(EveryWorld, OfARingContendsForNothingAnywhere) {
  const Rank world = GetParam();
  std::vector<Topology> networks = direct_networks(world);
  for (const std::int32_t oversubscription : {1, 2, 4})
    networks.push_back(topology::fat_tree(world, 4, oversubscription));
  for (const Collective collective : ring_collectives()) {
    const Schedule schedule = ring(collective, world);
    for (const Topology& network : networks)
      EXPECT_EQ(contention(schedule, network).most_transfers, world > 1 ? 1U : 0U) << network.name;
    const Contention on_ring = contention(schedule, networks.front());
    const double share = (collective == Collective::all_reduce ? 2.0 : 1.0) * (world - 1) / world;
    EXPECT_DOUBLE_EQ(on_ring.busiest_load, share);
    EXPECT_DOUBLE_EQ(on_ring.load_by_rounds, share);
  }
}

// Each direction of each link for itself.
TEST_P(EveryWorld, OfAlgorithmsForNeighboursContendsForNothingOnTheirNetwork) {
  const Rank world = GetParam();
  const std::uint32_t once = world > 1 ? 1 : 0;
  const auto expect_once = [&](const Schedule& schedule, const Topology& network) {
    SCOPED_TRACE(name(schedule) + " on " + network.name);
    EXPECT_EQ(missing_link(schedule, network), "");
    EXPECT_EQ(contention(schedule, network).most_transfers, once);
  };
  for (const Collective collective : ring_collectives()) {
    expect_once(bidirectional_ring(collective, world), topology::ring(world));
    for (const AlgorithmSpec& spec : candidates(collective, world)) {
      const std::string_view grid = spec.algorithm().name;
      if (grid != "torus" && grid != "mesh") continue;
      if (world > most_shapes && *std::max_element(spec.dims.begin(), spec.dims.end()) > 50) continue;  // as above
      const Schedule schedule = spec.algorithm().build({.collective = collective, .world = world, .dims = spec.dims});
      expect_once(schedule, grid == "torus" ? topology::torus(spec.dims) : topology::mesh(spec.dims));
    }
  }
  expect_once(neighbor_exchange(world), topology::mesh({world}));
  const std::vector<Rank> dims = two_dimensions(world);
  expect_once(neighbor_exchange(world, {.dims = dims}), topology::mesh(dims));
  if (dims[0] > 1)
    expect_once(neighbor_exchange(world, {.dims = dims, .periodic = {true, true}}), topology::torus(dims));
}

// One partner a round is what they are for.
TEST_P(EveryWorld, OfPairsContendsForNothingOnAStar) {
  const Topology star = topology::star(GetParam());
  for_each([&](const Schedule& schedule) {
    const std::array one_partner{"ring",      "halving_doubling", "binomial_tree",    "recursive_doubling",
                                 "bine_tree", "round_robin",      "parameter_server", "bruck",
                                 "pat"};
    if (std::count(one_partner.begin(), one_partner.end(), schedule.algorithm) == 0) return;
    EXPECT_EQ(contention(schedule, star).most_transfers, GetParam() > 1 ? 1U : 0U) << name(schedule);
  });
}

// Each direction of a ring of p carries every pair that is nearer that way, 1 + 2 + …, and half of those halfway.
TEST_P(EveryWorld, OfAllPairsAtOnceContendsOnARingForAnEighthOfTheSquare) {
  const Rank world = GetParam();
  if (world == 1) return;
  const auto p = static_cast<std::uint32_t>(world);
  const Contention found = contention(direct(Collective::all_to_all, world), topology::ring(world));
  EXPECT_EQ(found.most_transfers, p % 2 == 1 ? (p * p - 1) / 8 : (p * p + 7) / 8);
}

}  // namespace
}  // namespace ranvier
