// Every route of every shape is a walk along links that exist, ends where it should, and is as short as a search
// through the graph finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "ranvier/topology.h"

namespace ranvier {
namespace {

std::vector<Topology> shapes() {
  using namespace topology;
  std::vector<Topology> result;
  for (const Rank world : {1, 2, 3, 4, 5, 6, 8, 9, 13, 16}) {
    result.push_back(star(world));
    result.push_back(ring(world));
    result.push_back(fully_connected(world));
    for (const int arity : {2, 4, 6}) {
      result.push_back(fat_tree(world, arity));
      result.push_back(fat_tree(world, arity, 2));
    }
  }
  result.push_back(fat_tree(27, 3));
  result.push_back(fat_tree(27, 3, 3));
  result.push_back(fat_tree(70, 4));
  for (const std::vector<Rank>& dims : std::vector<std::vector<Rank>>{
           {1}, {7}, {2, 4}, {4, 4}, {3, 5}, {1, 6}, {6, 1}, {2, 2, 2}, {2, 3, 4}, {4, 4, 4}, {3, 1, 2, 4}}) {
    result.push_back(mesh(dims));
    result.push_back(torus(dims));
  }
  return result;
}

std::vector<int> distances_from(const Topology& topology, Vertex start) {
  std::vector<std::vector<Vertex>> next(static_cast<std::size_t>(topology.world + topology.switches));
  for (const Link& link : topology.links) next[static_cast<std::size_t>(link.from)].push_back(link.to);
  std::vector<int> distances(next.size(), -1);
  distances[static_cast<std::size_t>(start)] = 0;
  for (std::deque<Vertex> left{start}; !left.empty(); left.pop_front())
    for (const Vertex vertex : next[static_cast<std::size_t>(left.front())]) {
      int& distance = distances[static_cast<std::size_t>(vertex)];
      if (distance >= 0) continue;
      distance = distances[static_cast<std::size_t>(left.front())] + 1;
      left.push_back(vertex);
    }
  return distances;
}

template <class Visit>
void for_each_pair(const Topology& topology, Visit visit) {
  for (Rank from = 0; from < topology.world; ++from)
    for (Rank to = 0; to < topology.world; ++to) visit(from, to);
}

TEST(Routes, AreShortestWalksAlongLinks) {
  for (const Topology& topology : shapes()) {
    std::vector<int> distances;
    for_each_pair(topology, [&](Rank from, Rank to) {
      if (to == 0) distances = distances_from(topology, from);
      const Path path = topology.path(from, to);
      ASSERT_EQ(path.size(), distances[static_cast<std::size_t>(to)]) << topology.name << ": " << from << " to " << to;
      Vertex at = from;
      for (const LinkNumber link : path) {
        ASSERT_LT(link, topology.links.size());
        ASSERT_EQ(topology.links[link].from, at) << topology.name << ": " << from << " to " << to;
        at = topology.links[link].to;
      }
      ASSERT_EQ(at, to) << topology.name;
    });
  }
}

TEST(Routes, AreAsLongBack) {
  for (const Topology& topology : shapes())
    for_each_pair(topology, [&](Rank from, Rank to) {
      ASSERT_EQ(topology.path(from, to).size(), topology.path(to, from).size()) << topology.name;
    });
}

TEST(Routes, UseEveryLinkOfTheGridsAndStars) {
  for (const Topology& topology : shapes()) {
    if (topology.name.starts_with("fat_tree") || topology.world == 1) continue;
    std::set<LinkNumber> used;
    for_each_pair(topology, [&](Rank from, Rank to) {
      for (const LinkNumber link : topology.path(from, to)) used.insert(link);
    });
    EXPECT_EQ(used.size(), topology.links.size()) << topology.name;
  }
}

TEST(Links, ComeInPairsOnceEach) {
  for (const Topology& topology : shapes()) {
    std::set<std::pair<Vertex, Vertex>> seen;
    for (const Link& link : topology.links) {
      EXPECT_NE(link.from, link.to);
      EXPECT_GE(std::min(link.from, link.to), 0);
      EXPECT_LT(std::max(link.from, link.to), topology.world + topology.switches) << topology.name;
      EXPECT_TRUE(seen.emplace(link.from, link.to).second) << topology.name;
    }
    for (const auto& [from, to] : seen) EXPECT_TRUE(seen.contains({to, from})) << topology.name;
  }
}

TEST(Links, HaveTheSpeedThatWasAskedFor) {
  const LinkSpeed slow{.bytes_per_second = 25e6, .latency = std::chrono::milliseconds(2)};
  using namespace topology;
  for (const Topology& each : {star(4, slow), fully_connected(4, slow), ring(4, slow), mesh({2, 2}, slow),
                               torus({4, 4}, slow), fat_tree(16, 4, 2, slow)})
    for (const Link& link : each.links) {
      EXPECT_EQ(link.speed.bytes_per_second, 25e6) << each.name;
      EXPECT_EQ(link.speed.latency, std::chrono::milliseconds(2)) << each.name;
    }
}

TEST(Links, AreAsManyAsTheShapeHas) {
  using namespace topology;
  EXPECT_EQ(star(8).links.size(), 16u);
  EXPECT_EQ(fully_connected(8).links.size(), 56u);
  EXPECT_EQ(ring(8).links.size(), 16u);
  EXPECT_EQ(ring(2).links.size(), 2u);  // one cable, not two beside each other
  EXPECT_EQ(mesh({2, 4}).links.size(), 2u * (4 + 6));
  EXPECT_EQ(torus({4, 4}).links.size(), 64u);
  EXPECT_EQ(torus({2, 4}).links.size(), 2u * (4 + 8));
}

TEST(FatTree, IsAKaryNTree) {
  const Topology tree = topology::fat_tree(64, 4);
  EXPECT_EQ(tree.switches, 3 * 16);
  EXPECT_EQ(tree.links.size(), 3u * 2 * 64);  // as wide at the top as at the leaves
  const Topology slim = topology::fat_tree(64, 4, 2);
  EXPECT_EQ(slim.switches, 16 + 4 * 2 + 4);
  EXPECT_EQ(slim.links.size(), 2u * (64 + 16 * 2 + 4 * 2 * 2));
  EXPECT_EQ(topology::fat_tree(4, 4).switches, 1);  // one leaf is a star
}

// The whole of the last leaf's part of the tree is there, and nothing that serves nobody.
TEST(FatTree, LeavesOutSwitchesThatServeNobody) {
  const Topology tree = topology::fat_tree(6, 4);
  EXPECT_EQ(tree.switches, 2 + 4);
  EXPECT_EQ(tree.links.size(), 2u * (6 + 2 * 4));
}

TEST(Routes, OnAMeshGoAlongTheLastDimensionFirst) {
  const Topology mesh = topology::mesh({2, 4});
  std::vector<std::string> names;
  for (const LinkNumber link : mesh.path(6, 0)) names.push_back(link_name(mesh, link));
  EXPECT_EQ(names, (std::vector<std::string>{"rank 6 -> rank 5", "rank 5 -> rank 4", "rank 4 -> rank 0"}));
}

TEST(Routes, HalfwayAroundARingTakeBothDirectionsInTurn) {
  const Topology ring = topology::ring(6);
  EXPECT_EQ(link_name(ring, ring.path(2, 5).front()), "rank 2 -> rank 3");
  EXPECT_EQ(link_name(ring, ring.path(3, 0).front()), "rank 3 -> rank 2");
}

TEST(Dimensions, OfAGridAreThoseAlongWhichLinksLead) {
  const Topology torus = topology::torus({3, 4});
  ASSERT_FALSE(torus.links.empty());
  for (const Link& link : torus.links)
    EXPECT_EQ(link.dimension, link.from / 4 == link.to / 4 ? 1 : 0) << link.from << " -> " << link.to;
}

TEST(Dimensions, OfATreeAreItsLevels) {
  const Topology tree = topology::fat_tree(8, 2);
  std::vector<std::int32_t> levels;
  for (const LinkNumber link : tree.path(0, 7)) levels.push_back(tree.links[link].dimension);
  EXPECT_EQ(levels, (std::vector<std::int32_t>{0, 1, 2, 2, 1, 0}));
}

TEST(Names, TellRanksFromSwitches) {
  const Topology star = topology::star(3);
  EXPECT_EQ(vertex_name(star, 2), "rank 2");
  EXPECT_EQ(vertex_name(star, 3), "switch 0");
  EXPECT_EQ(link_name(star, star.path(1, 0).back()), "switch 0 -> rank 0");
}

}  // namespace
}  // namespace ranvier
