// What networks do after they have lost cables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranvier/error.h"
#include "ranvier/topology.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using testing::HasSubstr;

std::vector<Vertex> way(const Topology& topology, Rank from, Rank to) {
  std::vector<Vertex> corners{from};
  for (const LinkNumber link : topology.path(from, to)) {
    EXPECT_EQ(topology.links[link].from, corners.back());
    corners.push_back(topology.links[link].to);
  }
  return corners;
}

TEST(WithoutCables, LeavesNoLinkAndGoesAShortestWayAround) {
  const Topology torus = make_topology("torus:4x4", 16);
  const Topology left = without_cables(torus, {{0, 1}});
  EXPECT_EQ(left.links.size(), torus.links.size() - 2);
  for (Rank from = 0; from < 16; ++from)
    for (Rank to = 0; to < 16; ++to) {
      const auto before = way(torus, from, to);
      const auto after = way(left, from, to);
      EXPECT_EQ(after.back(), to);
      bool crosses = false;
      for (std::size_t i = 1; i < before.size(); ++i) crosses |= before[i - 1] + before[i] == 1;
      if (crosses) continue;
      EXPECT_EQ(after, before);
    }
  EXPECT_EQ(way(left, 0, 1).size(), 4u);  // over the next row
}

TEST(WithoutCables, RanksForwardOnlyWhereTheyHaveLinksToOneAnother) {
  EXPECT_EQ(way(without_cables(make_topology("fully_connected", 4), {{0, 1}}), 0, 1).size(), 3u);
  const Topology tree = make_topology("fat_tree:2", 4);  // two switches over two ranks each, and two above them
  const Vertex leaf = tree.links[tree.path(0, 3).front()].to;
  const Vertex above = tree.links[tree.path(0, 3)[1]].to;
  const Topology left = without_cables(tree, {{leaf, above}});
  EXPECT_EQ(way(left, 0, 3).size(), way(tree, 0, 3).size());
  EXPECT_NE(way(left, 0, 3), way(tree, 0, 3));
  const Topology alone = without_cables(tree, {{leaf, 0}});
  EXPECT_THAT(support::refusal([&] { alone.path(0, 1); }),
              HasSubstr("rank 0 has no way to rank 1 without the cable switch 0 - rank 0"));
  EXPECT_EQ(way(alone, 2, 3), way(tree, 2, 3));
}

TEST(WithoutCables, EveryLostCableIsLeftOut) {
  const Topology ring = make_topology("ring", 6);
  EXPECT_THAT(way(without_cables(ring, {{0, 1}}), 0, 1), testing::ElementsAre(0, 5, 4, 3, 2, 1));
  const Topology halves = without_cables(ring, {{0, 1}, {4, 3}});
  EXPECT_THAT(way(halves, 1, 3), testing::ElementsAre(1, 2, 3));
  EXPECT_THAT(support::refusal([&] { halves.path(0, 1); }),
              HasSubstr("without the cable rank 0 - rank 1, rank 4 - rank 3"));
}

TEST(WithoutCables, RefusesOneThatIsNotThere) {
  const Topology ring = make_topology("ring", 6);
  EXPECT_THAT(support::refusal([&] {
                without_cables(ring, {{0, 2}});
              }),
              HasSubstr("ring has no cable rank 0 - rank 2; its cables go to rank 1, rank 5"));
  EXPECT_THAT(support::refusal([&] {
                without_cables(ring, {{9, 2}});
              }),
              HasSubstr("it has ranks 0 to 5 and 0 switches"));
}

}  // namespace
}  // namespace ranvier
