// Folded against whole worlds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <tuple>

#include "plan/known_schedules.h"
#include "plan/simulate/groups.h"
#include "plan/simulate/instance.h"
#include "ranvier/error.h"
#include "ranvier/network.h"
#include "ranvier/simulate.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using plan_testing::all_reduce;
using plan_testing::one_gigabyte;

// In a ring through a torus a rank at the end of a row is two hops from the next one. Only with a trace all rounds are
// gone through.
TEST(Folding, OfManyRoundsTheFirstSayWhatAllTake) {
  constexpr Rank world = 1 << 14;
  const Topology torus = topology::torus({world / 16, 16}, one_gigabyte);
  const Schedule schedule = all_reduce("ring", world);
  const auto all = simulate(schedule, torus, std::size_t{world} * 100, 4, {.trace = true});
  const auto first = simulate(schedule, torus, std::size_t{world} * 100, 4, {});
  EXPECT_LT(first.ranks * 4, world);
  EXPECT_NEAR(first.ns, all.ns, 1e-3 * all.ns);
  EXPECT_EQ(all.messages, std::size_t{16} * 2 * (world - 1));
  EXPECT_NEAR(static_cast<double>(first.messages), static_cast<double>(all.messages), 16);
  ASSERT_EQ(first.links.size(), all.links.size());
  for (std::size_t i = 0; i < all.links.size(); ++i)
    EXPECT_NEAR(first.links[i].utilisation, all.links[i].utilisation, 1e-2 * all.links[i].utilisation) << i;
}

// Every algorithm on every topology: where a world folds, its time and the use of its links are those of the whole.
TEST(Folding, ChangesNothing) {
  int folded = 0, several = 0;
  for (const Rank world : {2, 4, 6, 8, 9, 16})
    for (const Algorithm& algorithm : algorithms()) {
      if (std::ranges::count(algorithm.collectives, Collective::all_reduce) == 0) continue;
      const Schedule schedule = all_reduce(algorithm.name, world);
      std::vector<std::string> topologies{"star", "ring", "fully_connected", "fat_tree:2"};
      if (world >= 8)
        for (const char* tree : {"fat_tree:3", "fat_tree:4,oversubscription=2", "fat_tree:4,oversubscription=4"})
          topologies.emplace_back(tree);
      if (world == 16) topologies.emplace_back("torus:4x4");
      if (world == 9) topologies.emplace_back("torus:3x3");
      for (const char* shape : {"SW(2)_RI(3)", "RI(2)_SW(4)", "FC(4)_RI(2)", "SW(2)_SW(4)", "RI(3)_FC(3)",
                                "RI(4)_SW(4)", "FC(4)_SW(2)_RI(2)"})
        if (parse_network(shape).npus() == world) topologies.emplace_back(shape);
      for (const auto& spec : topologies) {
        SCOPED_TRACE(fmt::format("{} of {} on {}", algorithm.name, world, spec));
        Topology topology = names_a_shape(spec) ? topology_of(parse_network(spec), {}) : make_topology(spec, world);
        for (Link& link : topology.links) {
          link.speed = one_gigabyte;
          link.speed.bytes_per_second /= 1 + 0.3 * link.dimension;
        }
        const std::size_t count = 300 * schedule.chunks;
        SimulateOptions options{.slice_bytes = 400, .message_ns = 30, .reduce_bytes_per_ns = 3};
        const auto one = simulate(schedule, topology, count, 4, options);
        options.fold = false;
        const auto all = simulate(schedule, topology, count, 4, options);
        EXPECT_FALSE(all.folded);
        EXPECT_NEAR(one.ns, all.ns, 1e-9 * all.ns);
        if (!one.folded) continue;
        ++folded;
        several += one.ranks > 1 ? 1 : 0;
        EXPECT_EQ(one.messages * static_cast<std::size_t>(world / one.ranks), all.messages);
        double most_one = 0, most_all = 0;
        for (const auto& link : one.links) most_one = std::max(most_one, link.utilisation);
        for (const auto& link : all.links) most_all = std::max(most_all, link.utilisation);
        EXPECT_NEAR(most_one, most_all, 1e-9);
      }
    }
  EXPECT_GE(folded, 85);
  EXPECT_GE(several, 1);
}

// Groups whose borders are not those of the network's dimensions, and ranks that wait for other slices than their
// neighbours do, are of several kinds, each of which is simulated once.
TEST(Folding, OfSeveralKindsOfRanksChangesNothing) {
  struct Case {
    const char* topology;
    Rank world;
    const char* algorithm;
    Grouping group;
    Rank kinds;  // 0: none are alike
    std::size_t slice_bytes = 400;
  };
  for (const auto& [spec, world, algorithm, group, kinds, slice_bytes] :
       std::vector<Case>{{"star", 64, "halving_doubling", {64, 1}, 32},
                         {"fat_tree:4", 64, "halving_doubling", {64, 1}, 0},
                         {"star", 60, "hierarchical:4", {60, 1}, 1, 1 << 20},
                         {"star", 30, "multi_dimensional:5x6", {30, 1}, 1, 1 << 20},
                         {"star", 30, "multi_dimensional:5x6", {30, 1}, 0},
                         {"torus:8x8", 64, "ring", {64, 1}, 8},
                         {"RI(8)_SW(8)", 64, "ring", {16, 4}, 8},
                         {"SW(8)_SW(8)", 64, "ring", {16, 4}, 2},
                         {"SW(8)_RI(8)", 64, "ring", {4, 1}, 1},
                         {"FC(8)_SW(8)", 64, "direct", {2, 4}, 1},
                         {"torus:4x4x4", 64, "ring", {8, 8}, 16},
                         {"torus:8x8", 64, "ring", {16, 2}, 32},
                         {"mesh:8x8", 64, "ring", {64, 1}, 0},
                         {"star", 64, "binomial_tree", {64, 1}, 0}}) {
    SCOPED_TRACE(fmt::format("{} in groups of {} on {} of {}", algorithm, group.size, spec, world));
    Topology topology = names_a_shape(spec) ? topology_of(parse_network(spec), {}) : make_topology(spec, world);
    for (Link& link : topology.links) {
      link.speed = one_gigabyte;
      link.speed.bytes_per_second /= 1 + 0.3 * link.dimension;
    }
    const Schedule schedule = plan::in_all_groups(Collective::all_reduce, world, {group}, algorithm);
    SimulateOptions options{.slice_bytes = slice_bytes,
                            .message_ns = 30,
                            .grid = {world / group.stride / group.size, group.size, group.stride}};
    const std::size_t count = 64 * schedule.chunks;
    const auto one = simulate(schedule, topology, count, 4, options);
    options.fold = false;
    const auto all = simulate(schedule, topology, count, 4, options);
    EXPECT_EQ(one.folded, kinds > 0);
    EXPECT_EQ(one.ranks, kinds > 0 ? kinds : world);
    EXPECT_NEAR(one.ns, all.ns, 1e-9 * all.ns);
    EXPECT_EQ(one.messages * static_cast<std::size_t>(world / one.ranks), all.messages);
    double most_one = 0, most_all = 0;
    for (const auto& link : one.links) most_one = std::max(most_one, link.utilisation);
    for (const auto& link : all.links) most_all = std::max(most_all, link.utilisation);
    EXPECT_NEAR(most_one, most_all, 1e-9);
  }
}

// Halving and doubling folds while its runs of chunks fit in a slice: ranks that wait for the first or the last of
// several slices are not alike.
TEST(Folding, MakesLargeWorldsCheap) {
  for (const char* algorithm : {"ring", "halving_doubling"}) {
    constexpr Rank world = 65536;
    const Schedule schedule = all_reduce(algorithm, world);
    const auto run = simulate(schedule, topology::star(world, one_gigabyte), schedule.chunks, 4);
    EXPECT_TRUE(run.folded) << algorithm;
    EXPECT_GT(run.ns, 2.0 * (world - 1) * 4) << algorithm;
    EXPECT_LT(run.messages, 2 * std::size_t{world}) << algorithm;
  }
}

// By dimensions, as its ranks and cables are.
TEST(Folding, MakesLargeShapesCheap) {
  for (const auto& [text, dims] : {std::pair("RI(4)_FC(8)_SW(2)", std::vector<Rank>{2, 8, 4}),
                                   std::pair("RI(4)_FC(8)_RI(4)_SW(32)", std::vector<Rank>{32, 4, 8, 4})}) {
    const Topology topology = topology_of(parse_network(text), one_gigabyte);
    const Schedule schedule = all_reduce("torus", topology.world, dims);
    const std::size_t count = 4 * schedule.chunks;
    const auto one = simulate(schedule, topology, count, 4);
    EXPECT_TRUE(one.folded) << text;
    if (topology.world > 100) continue;
    const auto all = simulate(schedule, topology, count, 4, {.fold = false});
    EXPECT_NEAR(one.ns, all.ns, 1e-9 * all.ns) << text;
  }
}

TEST(Folding, MakesLargeTreesCheap) {
  constexpr Rank world = 1 << 17;
  const Schedule schedule = all_reduce("halving_doubling", world);
  const Topology tree = topology::fat_tree(world, 64, 4, one_gigabyte);
  const SimulateOptions options{.slice_bytes = 1 << 20};
  const auto run = simulate(schedule, tree, schedule.chunks, 4, options);
  EXPECT_TRUE(run.folded);
  EXPECT_GT(run.ns, simulate(schedule, topology::star(world, one_gigabyte), schedule.chunks, 4, options).ns);
  for (const auto& link : run.links) EXPECT_LE(link.utilisation, 1 + 1e-9);
}

// Where no rank does what another does, all are simulated, if they do not send too much. In each round of a tree
// whoever still has a partner sends all there is, or gets it.
TEST(Folding, LeavesLargeWorldsOfFewMessagesWhole) {
  constexpr Rank world = 1 << 17;
  constexpr std::size_t count = 25'000;
  const Schedule tree =
      find_algorithm("binomial_tree", Collective::reduce).build({.collective = Collective::reduce, .world = world});
  const auto run = simulate(tree, topology::star(world, one_gigabyte), count, 4);
  EXPECT_FALSE(run.folded);
  EXPECT_EQ(run.ranks, world);
  EXPECT_EQ(run.messages, static_cast<std::size_t>(world) - 1);
  const double latency_ns = 2.0 * static_cast<double>(one_gigabyte.latency.count());
  EXPECT_NEAR(run.ns, 17 * (4.0 * count + latency_ns), 1e-6 * run.ns);
}

// Ranks that wait for the first of several slices are not like those that wait for the last; in slices as long as
// messages, or of which all messages are made, they are.
TEST(Folding, TakesOtherSlicesWhereThoseAskedForLeaveNoRanksAlike) {
  for (const auto& [algorithm, spec] :
       {std::pair("torus:8x8x8", "torus:8x8x8"), std::pair("torus:8x8x8", "star"),
        std::pair("multi_dimensional:8x8x8", "FC(8)_FC(8)_SW(8)"), std::pair("halving_doubling", "fat_tree:8")}) {
    SCOPED_TRACE(fmt::format("{} on {}", algorithm, spec));
    constexpr Rank world = 512;
    Topology topology =
        names_a_shape(spec) ? topology_of(parse_network(spec), one_gigabyte) : make_topology(spec, world);
    for (Link& link : topology.links) link.speed = one_gigabyte;
    const AlgorithmSpec named = parse_algorithm(algorithm);
    const Schedule schedule = all_reduce(named.algorithm().name, world, named.dims);
    const std::size_t count = std::size_t{schedule.chunks} * 150;
    SimulateOptions options{.slice_bytes = 10'000, .most_whole = 16, .most_messages = 1};
    const auto one = simulate(schedule, topology, count, 4, options);
    EXPECT_TRUE(one.folded);
    EXPECT_FALSE(one.by_smaller_worlds);
    EXPECT_NE(one.slice_bytes, options.slice_bytes);
    options = {.slice_bytes = one.slice_bytes, .fold = false};
    EXPECT_NEAR(simulate(schedule, topology, count, 4, options).ns, one.ns, 1e-9 * one.ns);
  }
}

// A tree of twice as many ranks takes a round more.
TEST(Folding, OfTreesSmallerWorldsTellTheTime) {
  for (const auto& [algorithm, world, error] :
       {std::tuple("binomial_tree", 1 << 12, 1e-6), std::tuple("bine_tree", 1 << 12, 1e-6),
        std::tuple("double_binary_tree", 1 << 12, 5e-3), std::tuple("binomial_tree", 5000, 4e-2)}) {
    SCOPED_TRACE(fmt::format("{} of {}", algorithm, world));
    const Schedule schedule = all_reduce(algorithm, world);
    const Topology star = topology::star(world, one_gigabyte);
    constexpr std::size_t count = 32 * 1000;
    SimulateOptions options{.slice_bytes = 4000, .most_messages = 1};
    const auto one = simulate(schedule, star, count, 4, options);
    EXPECT_TRUE(one.by_smaller_worlds);
    EXPECT_LT(one.ranks, world);
    options.fold = false;
    options.most_messages = 10'000'000;
    const auto all = simulate(schedule, star, count, 4, options);
    EXPECT_EQ(all.ranks, world);
    EXPECT_NEAR(one.ns, all.ns, error * all.ns);
    EXPECT_NEAR(static_cast<double>(one.messages), static_cast<double>(all.messages),
                0.1 * static_cast<double>(all.messages));
    ASSERT_LE(one.links.size(), all.links.size());
    for (std::size_t i = 0; i < one.links.size(); i += 8) {
      EXPECT_EQ(one.links[i].from, all.links[i].from);
      EXPECT_NEAR(one.links[i].utilisation, all.links[i].utilisation, 0.03) << i;
    }
  }
  // Of a ring, which takes twice as many rounds, no line says anything.
  EXPECT_FALSE(simulate(all_reduce("ring", 4096), topology::star(4096), 4096, 4).by_smaller_worlds);
}

// Messages of large worlds are counted on some of their ranks, also where these send unlike numbers of them.
TEST(Folding, OfLargeWorldsSomeRanksTellHowManyMessagesThereAre) {
  constexpr Rank world = 8192;
  const auto tree = all_reduce("binomial_tree", world);
  const auto mesh = make_topology("mesh:128x64", world);
  const auto is_done = [&](std::size_t most) {
    try {
      simulate(tree, mesh, 1024, 4, {.most_messages = most});
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  constexpr std::size_t messages = 2 * (world - 1);
  EXPECT_FALSE(is_done(messages * 8 / 10));
  EXPECT_TRUE(is_done(messages * 12 / 10));
}

// What a refusal proposes is simulated.
TEST(Folding, IsRefusedWithWhatWouldFold) {
  const auto refused = [](std::string_view algorithm, std::string_view topology, std::size_t count) {
    return support::refusal([&] {
      simulate(all_reduce(algorithm, 2048), make_topology(topology, 2048), count, 4, {.most_messages = 1000});
    });
  };
  EXPECT_THAT(refused("binomial_tree", "star", 2048), testing::EndsWith("try fewer ranks, or algorithm ring"));
  EXPECT_THAT(refused("binomial_tree", "torus:64x32", 2048), testing::EndsWith("or algorithm torus:64x32"));
  EXPECT_TRUE(simulate(all_reduce("torus", 2048, {64, 32}), make_topology("torus:64x32", 2048), 2048, 4).folded);
  EXPECT_THAT(refused("ring", "mesh:64x32", 2048), testing::EndsWith("or topology star in place of it"));
  EXPECT_THAT(refused("ring", "fat_tree:8", 2048), testing::EndsWith("or algorithm recursive_doubling"));
  EXPECT_TRUE(simulate(all_reduce("recursive_doubling", 2048), make_topology("fat_tree:8", 2048), 2048, 4).folded);
  // 4094 messages of 400,000 bytes: two of each, no more.
  const Schedule tree = all_reduce("binomial_tree", 2048);
  SimulateOptions options{.slice_bytes = 1000, .most_messages = 10'000};
  EXPECT_THAT(support::refusal([&] { simulate(tree, make_topology("torus:64x32", 2048), 100'000, 4, options); }),
              testing::EndsWith("or slices of 200004 bytes"));
  options.slice_bytes = 200'004;
  EXPECT_EQ(simulate(tree, make_topology("torus:64x32", 2048), 100'000, 4, options).ranks, 2048);
}

TEST(Folding, IsNotDoneWhereRanksDiffer) {
  EXPECT_FALSE(simulate(all_reduce("ring", 6), topology::mesh({6}, one_gigabyte), 600, 4).folded);
  EXPECT_FALSE(simulate(all_reduce("binomial_tree", 8), topology::star(8, one_gigabyte), 800, 4).folded);
  EXPECT_FALSE(simulate(all_reduce("ring", 6), topology::star(6, one_gigabyte), 601, 4).folded);  // uneven chunks
  try {
    simulate(all_reduce("binomial_tree", 2048), topology::star(2048), 2048, 4, {.most_messages = 1000});
    ADD_FAILURE() << "2048 different ranks were simulated";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("does not look the same from each of its 2048 ranks"));
  }
}

// Runs between which one of another length is estimated may be folded in different ways, or one of them not at all.
TEST(Folding, BetweenRunsWithOtherLinksLoadsAreThoseOfTheLongerOne) {
  const SimulatedRun one{.ns = 10, .links = {{.from = "0", .to = "1", .utilisation = 0.2}}};
  const SimulatedRun like_it{.ns = 20, .links = {{.from = "0", .to = "1", .utilisation = 0.6}}};
  const SimulatedRun whole{
      .ns = 20, .links = {{.from = "0", .to = "1", .utilisation = 0.5}, {.from = "1", .to = "0", .utilisation = 0.25}}};
  const auto between = plan::on_the_line(one, like_it, 0.5);
  EXPECT_EQ(between.ns, 15);
  EXPECT_DOUBLE_EQ(between.links.at(0).utilisation, (0.2 * 10 + 0.6 * 20) / 2 / 15);
  const auto other = plan::on_the_line(one, whole, 0.5);
  EXPECT_EQ(other.ns, 15);
  ASSERT_EQ(other.links.size(), 2U);
  EXPECT_EQ(other.links[0].utilisation, 0.5);
  EXPECT_EQ(other.links[1].utilisation, 0.25);
}

}  // namespace
}  // namespace ranvier
