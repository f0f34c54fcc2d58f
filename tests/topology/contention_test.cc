// Known answers: what the literature, or a count on paper, says about algorithms on networks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranvier/error.h"
#include "ranvier/topology.h"
#include "schedule/every_schedule.h"

namespace ranvier {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Only sends, which are all that contention looks at: every rank's to the one that is `distance` ahead.
Schedule shift(Rank world, Rank distance) {
  return {.algorithm = "shift",
          .collective = Collective::reduce_scatter,
          .world = world,
          .chunks = static_cast<std::uint32_t>(world),
          .program = [=](Rank rank) {
            const Rank peer = (rank + distance) % world;
            return std::vector{Step{.action = Action::send, .peer = peer, .from = input(0), .to = {}, .round = 0}};
          }};
}

std::uint32_t most_transfers(const Schedule& schedule, std::string_view topology) {
  return contention(schedule, make_topology(topology, schedule.world)).most_transfers;
}

double load_by_rounds(const Schedule& schedule, std::string_view topology) {
  return contention(schedule, make_topology(topology, schedule.world)).load_by_rounds;
}

TEST(Contention, OfARingOnARingIsNone) {
  for (Rank world = 2; world <= 20; ++world) {
    const Contention found = contention(ring(Collective::all_reduce, world), topology::ring(world));
    const double share = 2.0 * (world - 1) / world;
    EXPECT_EQ(found.most_transfers, 1u);
    EXPECT_DOUBLE_EQ(found.busiest_load, share);
    EXPECT_DOUBLE_EQ(found.load_by_rounds, share);
    EXPECT_DOUBLE_EQ(found.traffic, share * world);
  }
}

// In rank order a ring follows the lines of a grid; only where a line ends does it leave them.
TEST(Contention, OfARingOnOtherNetworks) {
  const Schedule schedule = ring(Collective::all_reduce, 16);
  EXPECT_EQ(most_transfers(schedule, "star"), 1u);
  EXPECT_EQ(most_transfers(schedule, "fat_tree:4"), 1u);
  EXPECT_EQ(most_transfers(schedule, "fat_tree:4,oversubscription=4"), 1u);
  EXPECT_EQ(most_transfers(schedule, "fully_connected"), 1u);
  // From the end of row i back to column 0: one link around the torus, then one to row i+1.
  EXPECT_EQ(most_transfers(schedule, "torus:4x4"), 1u);
  // In a mesh back through the whole row; from the last corner to the first also up the whole column.
  EXPECT_EQ(most_transfers(schedule, "mesh:4x4"), 1u);
  EXPECT_EQ(most_transfers(schedule, "mesh:16"), 1u);
}

// Each direction of a ring of p carries every pair that is nearer that way: (1 + 2 + …), and half of those halfway.
TEST(Contention, OfDirectExchangeOnARingIsAnEighthOfTheSquare) {
  for (Rank world = 2; world <= 24; ++world) {
    const auto p = static_cast<std::uint32_t>(world);
    const Contention found = contention(direct(Collective::all_to_all, world), topology::ring(world));
    EXPECT_EQ(found.most_transfers, p % 2 == 1 ? (p * p - 1) / 8 : (p * p + 7) / 8) << world;
    EXPECT_DOUBLE_EQ(found.busiest_load, static_cast<double>(found.most_transfers) / world);
  }
}

TEST(Contention, OfDirectExchangeIsThatOfTheLinksOfARankOnAStarAndNoneOnFullConnection) {
  for (const Rank world : {2, 3, 8, 17}) {
    const Schedule schedule = direct(Collective::all_to_all, world);
    EXPECT_EQ(most_transfers(schedule, "star"), static_cast<std::uint32_t>(world - 1));
    EXPECT_EQ(most_transfers(schedule, "fully_connected"), 1u);
  }
}

// A line of n columns has n/2 * n/2 pairs over its middle, for each row that they can come from and go to in
// dimension-order routing: (n/2)^2 times the rows.
TEST(Contention, OfAllToAllOnAMeshIsThatOfItsMiddle) {
  EXPECT_EQ(most_transfers(direct(Collective::all_to_all, 16), "mesh:16"), 64u);
  EXPECT_EQ(most_transfers(direct(Collective::all_to_all, 16), "mesh:4x4"), 16u);
  EXPECT_EQ(most_transfers(direct(Collective::all_to_all, 16), "torus:4x4"), 8u);
}

TEST(Contention, NamesTheFirstRoundAndLinkOfTheMost) {
  const Topology ring = topology::ring(8);
  // In round 0 partners are neighbours; in round 1 rank 0 and 2 meet between 1 and 2 with rank 1 and 3.
  const Contention found = contention(halving_doubling(Collective::all_reduce, 8), ring);
  EXPECT_EQ(found.most_transfers, 2u);
  EXPECT_EQ(found.round, 1u);
  EXPECT_EQ(link_name(ring, found.link), "rank 1 -> rank 2");
}

TEST(Contention, OfATreeIsItsRootsOnAStar) {
  const Topology star = topology::star(8);
  const Contention found = contention(binomial_tree(Collective::broadcast, 8, 3), star);
  EXPECT_EQ(found.most_transfers, 1u);
  EXPECT_DOUBLE_EQ(found.busiest_load, 3);
  EXPECT_EQ(link_name(star, found.busiest_link), "rank 3 -> switch 0");
  EXPECT_DOUBLE_EQ(found.traffic, 7 * 2);  // every rank's vector crosses two links
}

TEST(Contention, CountsWhatOnePairExchangesInARoundOnce) {
  // Runs of chunks that go around the end of the vector travel as two messages.
  const Schedule schedule = halving_doubling(Collective::all_gather, 6);
  EXPECT_EQ(verify(schedule).most_messages, 4u);
  EXPECT_EQ(most_transfers(schedule, "star"), 1u);
  EXPECT_DOUBLE_EQ(load_by_rounds(schedule, "star"), 5.0 / 6);
}

TEST(Contention, OfOneRankIsNone) {
  for_each_schedule(1, 0, [](const Schedule& schedule) {
    const Contention found = contention(schedule, topology::star(1));
    EXPECT_EQ(found.most_transfers, 0u) << name(schedule);
    EXPECT_EQ(found.busiest_load, 0) << name(schedule);
  });
}

// A link that is half as fast is busy as long with half as much.
TEST(Contention, CallsTheLinkBusiestThatIsBusyLongest) {
  Topology star = topology::star(4);
  const Schedule schedule = direct(Collective::broadcast, 4, 1);
  EXPECT_EQ(link_name(star, contention(schedule, star).busiest_link), "rank 1 -> switch 0");
  const LinkNumber to_2 = star.path(1, 2).back();
  star.links[to_2].speed.bytes_per_second /= 4;
  const Contention found = contention(schedule, star);
  EXPECT_EQ(found.busiest_link, to_2);
  EXPECT_DOUBLE_EQ(found.busiest_load, 1);
}

// Whatever the algorithm: on a full connection a link carries its pair's transfer; a star's busiest link is that of the
// rank which sends or receives most; and less than full connection's traffic there is nowhere.
TEST(Contention, OfEveryAlgorithmIsWhatItsCostsSay) {
  for (const Rank world : {2, 5, 8, 12})
    for_each_shape(world, 1, [&](const Schedule& schedule) {
      SCOPED_TRACE(name(schedule));
      const Contention pairs = contention(schedule, topology::fully_connected(world));
      EXPECT_EQ(pairs.most_transfers, 1u);
      const Contention star = contention(schedule, topology::star(world));
      EXPECT_NEAR(star.traffic, 2 * pairs.traffic, 1e-9);
      const std::size_t elements = moves_whole_vector(schedule.collective) ? schedule.chunks : 1;
      const Verdict verdict = verify(schedule, {.count = elements});
      ASSERT_TRUE(verdict.ok) << verdict.problem;
      EXPECT_GE(star.busiest_load + 1e-9,
                static_cast<double>(verdict.most_bytes_sent) / static_cast<double>(verdict.vector_bytes));
      for (const std::string_view spec : {"ring", "fat_tree:2", "fat_tree:4,oversubscription=4"}) {
        const Contention found = contention(schedule, make_topology(spec, world));
        EXPECT_GE(found.traffic + 1e-9, pairs.traffic) << spec;
        EXPECT_GE(found.load_by_rounds + 1e-9, found.busiest_load) << spec;
      }
    });
}

// ---- Distances that double against distances that swing, both with data that halves (D. De Sensi and others, NSDI
// 2024). An all_reduce is twice what is counted here: once while data halves, once while it doubles.

Schedule doubling(Rank world) { return halving_doubling(Collective::all_reduce, world); }
Schedule swinging(Rank world) { return swing(Collective::all_reduce, world); }

double traffic(const Schedule& schedule, std::string_view topology) {
  return contention(schedule, make_topology(topology, schedule.world)).traffic;
}

TEST(Swing, CrossesFewerLinksOfARingThanRecursiveDoubling) {
  // Distances 1, 2, 4 against 1, 1, 3, carrying a half, a quarter and an eighth.
  EXPECT_DOUBLE_EQ(traffic(doubling(8), "ring"), 2 * 8 * 1.5);
  EXPECT_DOUBLE_EQ(traffic(swinging(8), "ring"), 2 * 8 * 1.125);
  // Then 5, 11, 21, 43 and 85: a quarter less for 8 ranks, 28 % for 16, 31 % for 256.
  EXPECT_DOUBLE_EQ(traffic(swinging(16), "ring") / traffic(doubling(16), "ring"), 1.4375 / 2);
  EXPECT_DOUBLE_EQ(traffic(swinging(256), "ring") / traffic(doubling(256), "ring"), 2.77734375 / 4);
}

TEST(Swing, ContendsLessOnARingThanRecursiveDoubling) {
  // Distance 4 of 8 halfway around, shared by both directions: two transfers a link; distance 2: two as well.
  EXPECT_DOUBLE_EQ(load_by_rounds(doubling(8), "ring"), 2 * (1.0 / 2 + 2.0 / 4 + 2.0 / 8));
  // Round 1 lies on the links that round 0 left free; distance 3 puts up to two on a link.
  EXPECT_DOUBLE_EQ(load_by_rounds(swinging(8), "ring"), 2 * (1.0 / 2 + 1.0 / 4 + 2.0 / 8));
  for (const Rank world : {8, 16, 32, 64})
    EXPECT_LT(load_by_rounds(swinging(world), "ring"), load_by_rounds(doubling(world), "ring")) << world;
}

TEST(Swing, GainsNothingOnAStar) {
  for (const Rank world : {8, 16, 64})
    EXPECT_DOUBLE_EQ(load_by_rounds(swinging(world), "star"), load_by_rounds(doubling(world), "star"));
}

// ---- Algorithms made for a grid: neighbours only, no link ever shared, and less on each than a ring would put there.

TEST(Grids, AreServedByTheirOwnAlgorithmsWithoutContention) {
  for (const std::vector<Rank>& dims : std::vector<std::vector<Rank>>{{4, 4}, {2, 4}, {3, 5}, {2, 3, 4}, {6}}) {
    Rank world = 1;
    for (const Rank size : dims) world *= size;
    for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
      const Schedule on_torus = torus(collective, world, dims);
      const Schedule on_mesh = mesh(collective, world, dims);
      EXPECT_EQ(missing_link(on_torus, topology::torus(dims)), "");
      EXPECT_EQ(missing_link(on_mesh, topology::mesh(dims)), "");
      EXPECT_EQ(contention(on_torus, topology::torus(dims)).most_transfers, 1u);
      EXPECT_EQ(contention(on_mesh, topology::mesh(dims)).most_transfers, 1u);
      EXPECT_LT(contention(on_torus, topology::torus(dims)).load_by_rounds,
                contention(ring(collective, world), topology::torus(dims)).load_by_rounds);
    }
  }
}

// Open borders on a mesh, joined ends on a torus, and any mixture on a torus as well.
TEST(Grids, CarryAnExchangeWithNeighboursWithoutContention) {
  for (const std::vector<Rank>& dims :
       std::vector<std::vector<Rank>>{{2}, {6}, {2, 2}, {2, 4}, {3, 5}, {1, 4}, {2, 3, 4}, {4, 4, 4}}) {
    Rank world = 1;
    for (const Rank size : dims) world *= size;
    const auto parts = static_cast<double>(2 * dims.size());
    const Schedule open = neighbor_exchange(world, {.dims = dims});
    EXPECT_EQ(missing_link(open, topology::mesh(dims)), "");
    EXPECT_EQ(contention(open, topology::mesh(dims)).most_transfers, 1u);
    EXPECT_DOUBLE_EQ(contention(open, topology::mesh(dims)).load_by_rounds, 2 / parts);
    for (unsigned chosen = 1; chosen < 1u << dims.size(); ++chosen) {
      CartesianGrid grid{.dims = dims};
      for (std::size_t d = 0; d < dims.size(); ++d) grid.periodic.push_back((chosen >> d & 1) != 0);
      const Schedule periodic = neighbor_exchange(world, grid);
      EXPECT_EQ(missing_link(periodic, topology::torus(dims)), "");
      const Contention found = contention(periodic, topology::torus(dims));
      EXPECT_EQ(found.most_transfers, 1u);
      EXPECT_DOUBLE_EQ(found.load_by_rounds, 2 / parts);
    }
  }
  EXPECT_THAT(missing_link(neighbor_exchange(6, {.dims = {6}, .periodic = {true}}), topology::mesh({6})),
              HasSubstr("no link"));
}

TEST(Grids, OfAnotherShapeLackLinksThatTheAlgorithmNeeds) {
  EXPECT_THAT(missing_link(torus(Collective::all_reduce, 16, {4, 4}), topology::torus({2, 8})), HasSubstr("no link"));
  EXPECT_THAT(missing_link(torus(Collective::all_reduce, 16, {4, 4}), topology::mesh({4, 4})), HasSubstr("no link"));
}

// ---- Fat trees.

TEST(FatTree, CarriesEveryShiftWithoutContention) {
  for (const auto& [world, spec] : {std::pair{16, "fat_tree:4"}, {64, "fat_tree:4"}, {27, "fat_tree:3"}})
    for (Rank distance = 1; distance < world; ++distance)
      EXPECT_EQ(most_transfers(shift(world, distance), spec), 1u) << world << " " << distance;
}

// Each level that all ranks of a subtree have to climb is narrower once more.
TEST(FatTree, SharesItsLinksAsManyTimesAsItIsOversubscribed) {
  EXPECT_EQ(most_transfers(shift(16, 4), "fat_tree:4,oversubscription=2"), 2u);
  EXPECT_EQ(most_transfers(shift(16, 4), "fat_tree:4,oversubscription=4"), 4u);
  EXPECT_EQ(most_transfers(shift(64, 16), "fat_tree:4,oversubscription=2"), 4u);
  EXPECT_EQ(most_transfers(shift(16, 1), "fat_tree:4,oversubscription=4"), 1u);  // only one rank of a leaf leaves it
}

// ---- Links that a topology lacks.

TEST(MissingLink, IsNoneBetweenNeighboursAndThroughSwitches) {
  for (Rank world = 1; world <= 9; ++world)
    for (const Collective collective : {Collective::all_reduce, Collective::broadcast, Collective::reduce})
      EXPECT_EQ(missing_link(ring(collective, world), topology::ring(world)), "") << world;
  for (const std::string_view spec : {"star", "fully_connected", "fat_tree:2"})
    EXPECT_EQ(missing_link(direct(Collective::all_to_all, 8), make_topology(spec, 8)), "") << spec;
}

TEST(MissingLink, NamesTheFirstTransferThatSomebodyForwards) {
  EXPECT_EQ(missing_link(halving_doubling(Collective::all_reduce, 8), topology::ring(8)),
            "in round 1 rank 0 sends to rank 2, and topology ring has no link between them, only a way of 2 links "
            "through rank 1");
  EXPECT_THAT(missing_link(ring(Collective::all_gather, 8), topology::mesh({2, 4})),
              AllOf(HasSubstr("in round 0 rank 3 sends to rank 4"), HasSubstr("4 links through rank 2")));
}

TEST(Contention, OfAnotherWorldIsRefused) {
  for (auto* call : {+[](const Schedule&s, const Topology&t) { contention(s, t); },
                     +[](const Schedule&s, const Topology&t) { missing_link(s, t); }}) {
    try {
      call(ring(Collective::all_reduce, 4), topology::star(5));
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("4 ranks"), HasSubstr("star of 5")));
    }
  }
}

}  // namespace
}  // namespace ranvier
