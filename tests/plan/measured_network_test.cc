// The file of a measured network, right and wrong, and what is simulated on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/temporary_file.h"
#include "ranvier/error.h"
#include "ranvier/measured_network.h"
#include "ranvier/simulate.h"

namespace ranvier {
namespace {

class MeasuredFile : public FileTest {};

MeasuredNetwork three_ranks() {
  MeasuredNetwork network{.world = 3, .transport = "tcp"};
  for (Rank from = 0; from < 3; ++from)
    for (Rank to = 0; to < 3; ++to)
      if (from != to) network.links.push_back({from, to, 1, 0.25, from == 2 || to == 2 ? 4.0 : 8.0, 0.5});
  network.loss_by = "segments that tcp sent again";
  set_loss(network.links[0], 1000, 10);
  set_loss(network.links[1], 0, 0);
  return network;
}

TEST_F(MeasuredFile, IsReadAsItWasWritten) {
  const MeasuredNetwork read = read_measured_network(holding(to_toml(three_ranks())));
  ASSERT_EQ(read.links.size(), 6u);
  EXPECT_EQ(read.world, 3);
  EXPECT_EQ(read.transport, "tcp");
  EXPECT_EQ(to_toml(read), to_toml(three_ranks()));
  EXPECT_EQ(read.loss_by, "segments that tcp sent again");
  EXPECT_EQ(read.links[0].packets, 1000);
  EXPECT_EQ(read.links[0].loss, 0.01);
  EXPECT_EQ(read.links[1].packets, 0);
}

// Four ranks whose links carry a byte a ns, on one machine.
MeasuredNetwork on_one_machine(double gbit_together) {
  MeasuredNetwork network{.world = 4, .transport = "tcp", .machines = {{{0, 1, 2, 3}, gbit_together}}};
  for (Rank from = 0; from < 4; ++from)
    for (Rank to = 0; to < 4; ++to)
      if (from != to) network.links.push_back({from, to, 1, 0, 8, 0});
  return network;
}

TEST_F(MeasuredFile, HasTheMachines) {
  MeasuredNetwork network = on_one_machine(5);
  network.machines = {{{0, 3}, 2.5}, {{1, 2}, 7}};
  const MeasuredNetwork read = read_measured_network(holding(to_toml(network)));
  ASSERT_EQ(read.machines.size(), 2u);
  EXPECT_THAT(read.machines[0].ranks, testing::ElementsAre(0, 3));
  EXPECT_EQ(read.machines[0].gbit_together, 2.5);
  EXPECT_EQ(to_toml(read), to_toml(network));
}

// The limits of 10 of 1,000 and of none of 100 are worked out from his formula by other means.
TEST(Loss, HasWilsonsLimits) {
  MeasuredLink link;
  set_loss(link, 1000, 10);
  EXPECT_NEAR(link.loss_least, 0.0054408, 1e-6);
  EXPECT_NEAR(link.loss_most, 0.0183095, 1e-6);
  set_loss(link, 100, 0);
  EXPECT_EQ(link.loss_least, 0);
  EXPECT_NEAR(link.loss_most, 0.0369935, 1e-6);
  set_loss(link, 3, 5);  // sent again more than once
  EXPECT_EQ(link.loss, 1);
  EXPECT_EQ(link.loss_most, 1);
}

MeasuredLink& between(MeasuredNetwork& network, Rank from, Rank to) {
  return *std::ranges::find_if(network.links, [&](const auto& link) { return link.from == from && link.to == to; });
}

// Rank 2 has a line of half the rate, which is no doubt about its pairs.
TEST(Doubts, AreOfPairsThatAreSlowerThanBothEndsAreWithOthers) {
  MeasuredNetwork network = three_ranks();
  EXPECT_TRUE(doubtful_pairs(network).empty());
  between(network, 1, 2).gbit_per_second = 3.7;
  between(network, 1, 0).gbit_per_second = 7.3;
  EXPECT_TRUE(doubtful_pairs(network).empty());
  between(network, 1, 2).gbit_per_second = 3.5;
  between(network, 2, 1).gbit_per_second = 3.5;
  EXPECT_THAT(doubtful_pairs(network), testing::ElementsAre(std::pair(1, 2)));
  for (MeasuredLink& link : network.links) link.gbit_both_ways = link.from == 2 || link.to == 2 ? 3.9 : 7.7;
  between(network, 2, 0).gbit_both_ways = 3.4;
  EXPECT_THAT(doubtful_pairs(network), testing::ElementsAre(std::pair(0, 2), std::pair(1, 2)));
}

// Of two ranks nobody knows better, but that a line carries the same both ways at once.
TEST(Doubts, AreOfTwoRanksWhereBothWaysIsLess) {
  MeasuredNetwork two{.world = 2, .links = {{0, 1, 1, 0, 8, 0}, {1, 0, 1, 0, 1, 0}}};
  EXPECT_TRUE(doubtful_pairs(two).empty());
  two.links[1].gbit_both_ways = 0.96;
  EXPECT_TRUE(doubtful_pairs(two).empty());
  two.links[0].gbit_both_ways = 7.5;
  EXPECT_THAT(doubtful_pairs(two), testing::ElementsAre(std::pair(0, 1)));
}

TEST(Doubts, TheBetterMeasurementCounts) {
  MeasuredLink slow{.from = 0, .to = 1, .latency_us = 9, .gbit_per_second = 2, .gbit_both_ways = 1.5};
  MeasuredLink fast{.from = 0, .to = 1, .latency_us = 8, .gbit_per_second = 4, .burst_bytes = 7, .gbit_both_ways = 1};
  set_loss(slow, 100, 5);
  set_loss(fast, 300, 3);
  for (const MeasuredLink& best : {better_of(slow, fast), better_of(fast, slow)}) {
    EXPECT_EQ(best.latency_us, 8);
    EXPECT_EQ(best.gbit_per_second, 4);
    EXPECT_EQ(best.burst_bytes, 7);
    EXPECT_EQ(best.gbit_both_ways, 1.5);
    EXPECT_EQ(best.packets, 400);
    EXPECT_NEAR(best.loss, 0.02, 1e-12);
  }
}

// 8 Gbit/s are a byte a ns. Rank 0 sends to 1 and 2 at once: over one NIC of its own, and to rank 2 half as fast at
// best.
TEST_F(MeasuredFile, BecomesNicsThatPairsShare) {
  const Topology topology = measured_topology(three_ranks());
  const auto run = [&](const char* algorithm, std::size_t count) {
    return simulate(find_algorithm(algorithm, Collective::all_reduce).build({.world = 3}), topology, count, 4).ns;
  };
  // Rank 2 sends two parts of 4,000 bytes at half a byte a ns together, twice.
  EXPECT_NEAR(run("direct", 3000), 2 * (16'000 + 1000), 1e-6);
}

TEST(Machine, RingIsAsFastAsItsSlowestLink) {
  MeasuredNetwork network = on_one_machine(5);
  EXPECT_EQ(ring_gbit(network, network.machines[0].ranks), 32);
  between(network, 1, 2).gbit_both_ways = 3;
  EXPECT_EQ(ring_gbit(network, network.machines[0].ranks), 12);
  EXPECT_EQ(ring_gbit(network, std::vector<Rank>{0, 2, 3}), 24);
}

TEST(Machine, RingShowsWhatItsLinksCarryAtLeast) {
  MeasuredNetwork network = on_one_machine(24);
  for (MeasuredLink& link : network.links) link.gbit_both_ways = 5;
  between(network, 1, 2).gbit_per_second = 5.5;
  between(network, 2, 3).gbit_both_ways = 7;
  raise_by_rings(network);
  EXPECT_EQ(between(network, 0, 1).gbit_both_ways, 6);
  EXPECT_EQ(between(network, 1, 2).gbit_both_ways, 5.5);
  EXPECT_EQ(between(network, 2, 3).gbit_both_ways, 7);
  EXPECT_EQ(between(network, 3, 0).gbit_both_ways, 6);
  EXPECT_EQ(between(network, 1, 0).gbit_both_ways, 5);
}

// Of the ring's six rounds each has four parts of 4,000 bytes, of which the processors send a byte a ns in all. Where
// they keep up with the links, these count.
TEST(Machine, ProcessorsAreShared) {
  const auto run = [](const MeasuredNetwork& network, const char* algorithm) {
    return simulate(find_algorithm(algorithm, Collective::all_reduce).build({.world = 4}), measured_topology(network),
                    4000, 4);
  };
  EXPECT_NEAR(run(on_one_machine(8), "ring").ns, 6 * (16'000 + 1000), 1e-3);
  for (const char* algorithm : {"ring", "direct", "double_binary_tree"}) {
    MeasuredNetwork alone = on_one_machine(8);
    alone.machines.clear();
    EXPECT_EQ(run(on_one_machine(29), algorithm).ns, run(alone, algorithm).ns) << algorithm;
  }
  const auto links = run(on_one_machine(8), "ring").links;
  const auto processors = std::ranges::find(links, "processors of ranks 0, 1, 2, 3", &SimulatedLink::from);
  ASSERT_NE(processors, links.end());
  EXPECT_NEAR(processors->utilisation, 16.0 / 17, 1e-6);
}

// Ranks 2 and 3 are on a machine that keeps up: what they send each other has nothing of the other one's.
TEST(Machine, IsSharedByItsOwnRanksAlone) {
  MeasuredNetwork network = on_one_machine(8);
  network.machines = {{{0, 1}, 2}, {{2, 3}, 16}};
  const Topology topology = measured_topology(network);
  EXPECT_EQ(topology.path(2, 3).size(), 3u);
  EXPECT_EQ(topology.path(0, 2).size(), 4u);
  EXPECT_EQ(topology.path(2, 0).size(), 4u);
  EXPECT_EQ(topology.path(0, 1).size(), 5u);
  EXPECT_EQ(link_name(topology, topology.path(0, 1).front()), "processors of ranks 0, 1");
  EXPECT_EQ(link_name(topology, topology.path(0, 1)[1]), "rank 0 -> switch 0");
}

TEST_F(MeasuredFile, ThatIsWrongNamesThePlace) {
  const std::string link = "[[link]]\nfrom = 0\nto = 1\nlatency_us = 1\ngbit_per_second = 1\n";
  const std::string back = "[[link]]\nfrom = 1\nto = 0\nlatency_us = 1\ngbit_per_second = 1\n";
  const std::string two = "world = 2\n" + link + back;
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"world = 2\n[[link]\n", "line 2, column"},
           {"", "the key world"},
           {"world = 0\n", "line 1, column 9: a whole number from 1"},
           {"world = 2\n", "the link from rank 0 to rank 1 is missing"},
           {"world = 2\n[[link]]\nfrom = 0\nto = 2\n", "line 4, column 6: a whole number from 0 to 1"},
           {"world = 2\n[[link]]\nfrom = 0\nto = 1\nlatency_us = 1\n", "the key gbit_per_second is missing"},
           {"world = 2\n[[link]]\nfrom = 0\nto = 1\nlatency_us = 1e17\n",
            "line 5, column 14: a number from 0 to 1e+06 is expected here"},
           {"world = 2\n[[link]]\nfrom = 0\nto = 1\nlatency_us = -1\n",
            "line 5, column 14: a number that is at least 0"},
           {"world = 2\n[[link]]\nfrom = 0\nto = 1\nlatency_us = 1\ngbit_per_second = 1\nburst_bytes = 1e19\n",
            "line 7, column 15: a number from 0 to 1e+15 is expected"},
           {"world = 2\n[[link]]\nfrom = 0\nto = 1\nlatency_us = 1\ngbit_per_second = 1e-300\n",
            "line 6, column 19: a number of Gbit/s from 1e-06 to 1e+06"},
           {"world = 2\n[[link]]\nfrom = 0\nto = 1\nlatency_us = 1\ngbit_per_second = 1\ngbit_both_ways = 1e-300\n",
            "line 7, column 18: a number of Gbit/s from 1e-06 to 1e+06"},
           {"world = 2\n[[link]]\nfrom = 1\nto = 1\nlatency_us = 1\ngbit_per_second = 1\n",
            "rank 1 has a link to itself"},
           {two + "[[machine]]\nranks = [0]\ngbit_together = 1\n", "a machine is of two ranks or more"},
           {two + "[[machine]]\nranks = [1, 0]\ngbit_together = 1\n", "the lowest first"},
           {two + "[[machine]]\nranks = [0, 0]\ngbit_together = 1\n",
            "line 13, column 13: rank 0 is on a machine already"},
           {two + "[[machine]]\nranks = [0, 2]\ngbit_together = 1\n", "line 13, column 13: a whole number from 0 to 1"},
           {two + "[[machine]]\nranks = [0, 1]\n", "the key gbit_together is missing"},
           {"world = 2\n" + link + link, "line 7, column 1: the link from rank 0 to rank 1 is there twice"}})
    try {
      read_measured_network(holding(text));
      ADD_FAILURE() << text << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::config);
      EXPECT_THAT(error.what(), testing::HasSubstr(part));
    }
}

}  // namespace
}  // namespace ranvier
