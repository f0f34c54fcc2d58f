// The simulator on schedules whose times are known, and folded against whole worlds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "plan/known_schedules.h"
#include "plan/simulate/collective_times.h"
#include "plan/simulate/fluid.h"
#include "ranvier/error.h"
#include "ranvier/simulate.h"
#include "schedule/steps.h"

namespace ranvier {
namespace {

using plan_testing::all_reduce;
using plan_testing::one_gigabyte;

TEST(Fluid, SharesByMaxMin) {
  // Flows 0 and 1 share link 0; 1 and 2 share link 1, which is three times as wide. 0 and 1 get a half each, 2 the
  // rest.
  plan::FluidNetwork network({{1}, {3}}, {{{0, 1}}, {{0, 1}, {1, 1}}, {{1, 1}}});
  for (std::uint32_t flow : {0, 1, 2}) network.start(flow, 10);
  EXPECT_DOUBLE_EQ(network.until_next(), 4);  // flow 2, at 2.5
  std::vector<std::uint32_t> done;
  network.advance(4, done);
  EXPECT_THAT(done, testing::ElementsAre(2));
  EXPECT_DOUBLE_EQ(network.until_next(), 16);  // 8 left at a half
  network.advance(16, done);
  EXPECT_THAT(done, testing::UnorderedElementsAre(0, 1, 2));
  EXPECT_DOUBLE_EQ(network.carried()[0], 20);
  EXPECT_DOUBLE_EQ(network.carried()[1], 20);
  EXPECT_FALSE(network.flows());
}

// Of one sender's messages the second waits for the first; what that one cannot use it gets.
TEST(Fluid, MessagesInTurnGoOneAfterAnother) {
  plan::FluidNetwork network({{2}, {0.5}}, {{{0, 1}}, {{0, 1}}, {{0, 1}, {1, 1}}}, {0, 0, 0});
  std::vector<std::uint32_t> done;
  network.start(0, 10);
  network.start(1, 10);
  EXPECT_DOUBLE_EQ(network.until_next(), 5);
  network.advance(5, done);
  EXPECT_THAT(done, testing::ElementsAre(0));
  EXPECT_DOUBLE_EQ(network.until_next(), 5);
  network.advance(5, done);
  network.start(2, 10);  // held up by a link of a half
  network.start(0, 15);
  EXPECT_DOUBLE_EQ(network.until_next(), 10);  // 1.5 are left for the later one
  network.advance(10, done);
  EXPECT_THAT(done, testing::ElementsAre(0, 1, 0));
}

// Rates that are found from what has changed, or in turn, and those that all flows together have by the book.
class FluidByTheBook : public testing::TestWithParam<bool> {};

TEST_P(FluidByTheBook, HasTheRatesOfAllFlowsTogether) {
  const bool in_turn = GetParam();
  std::mt19937 random(3);
  const auto below = [&](std::uint32_t most) {
    return std::uniform_int_distribution<std::uint32_t>(0, most - 1)(random);
  };
  for (int round = 0; round < 20; ++round) {
    constexpr std::uint32_t links = 40, channels = 60;
    std::vector<plan::FluidLink> speeds;
    for (std::uint32_t i = 0; i < links; ++i) speeds.push_back({1.0 + below(4)});
    std::vector<std::vector<plan::Crossing>> routes(channels);
    for (auto& route : routes)
      for (std::uint32_t hops = 1 + below(3); hops > 0; --hops)
        if (const std::uint32_t link = below(links); std::ranges::count(route, link, &plan::Crossing::link) == 0)
          route.push_back({link, 1.0 + below(2)});
    std::vector<std::uint32_t> senders;
    for (std::uint32_t channel = 0; in_turn && channel < channels; ++channel) senders.push_back(below(8));
    plan::FluidNetwork network(speeds, routes, senders);
    std::map<std::uint32_t, double> left;  // by channel that flows
    std::vector<std::uint32_t> begun;      // those, in the order in which they began
    for (int event = 0; event < 200; ++event) {
      for (std::uint32_t starts = below(event == 0 ? channels : 3) + 1; starts > 0; --starts)
        if (const std::uint32_t channel = below(channels); left.try_emplace(channel, 10.0 + below(90)).second) {
          network.start(channel, left.at(channel));
          begun.push_back(channel);
        }
      std::map<std::uint32_t, std::uint32_t> turns, of_sender;  // of all but one: the first
      for (const std::uint32_t channel : begun) turns[channel] = in_turn ? of_sender[senders[channel]]++ : 0;
      // Water filling, turn by turn.
      std::map<std::uint32_t, double> rates;
      for (std::uint32_t turn = 0; rates.size() < left.size();) {
        const auto is_due = [&](std::uint32_t channel) {
          return !rates.contains(channel) && turns.at(channel) == turn;
        };
        if (std::ranges::none_of(begun, is_due)) {
          ++turn;
          continue;
        }
        double level = INFINITY;
        std::uint32_t full = 0;
        for (std::uint32_t link = 0; link < links; ++link) {
          double room = speeds[link].bytes_per_ns, demand = 0;
          for (const auto& [channel, bytes] : left)
            for (const auto& crossing : routes[channel])
              if (crossing.link == link)
                rates.contains(channel) ? room -= rates.at(channel)* crossing.times
                                        : demand += is_due(channel) ? crossing.times : 0;
          if (demand == 0 || std::max(0.0, room) / demand >= level) continue;
          level = std::max(0.0, room) / demand;
          full = link;
        }
        for (const auto& [channel, bytes] : left)
          if (is_due(channel) && std::ranges::count(routes[channel], full, &plan::Crossing::link) > 0)
            rates[channel] = level;
      }
      double next = INFINITY;
      for (const auto& [channel, bytes] : left) next = std::min(next, bytes / rates.at(channel));
      ASSERT_NEAR(network.until_next(), next, 1e-6 * next) << round << ", " << event;
      const double passes = event % 3 == 0 ? next / 2 : network.until_next();
      std::vector<std::uint32_t> done;
      network.advance(passes, done);
      for (auto& [channel, bytes] : left) bytes -= rates.at(channel) * passes;
      EXPECT_EQ(done.empty(), event % 3 == 0);
      for (const auto channel : done) {
        EXPECT_NEAR(left.at(channel), 0, 1e-5);
        left.erase(channel);
        std::erase(begun, channel);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, FluidByTheBook, testing::Bool(),
                         [](const auto& each) { return each.param ? "InTurn" : "Evenly"; });

// Of a queue who has three times as much in it gets three times as much through.
TEST(Fluid, SharesByWeight) {
  plan::FluidNetwork network({{4}, {2}}, {{{0, 1}}, {{0, 1}}, {{0, 1}, {1, 1}}});
  network.weigh(0, 3);
  network.start(0, 30);
  network.start(1, 30);
  EXPECT_DOUBLE_EQ(network.until_next(), 10);
  std::vector<std::uint32_t> done;
  network.advance(5, done);
  network.weigh(0, 1);                          // while they flow
  EXPECT_DOUBLE_EQ(network.until_next(), 7.5);  // of the 15 that are left
  network.advance(7.5, done);
  EXPECT_THAT(done, testing::ElementsAre(0));
  network.weigh(2, 9);
  network.start(2, 10);
  EXPECT_DOUBLE_EQ(network.until_next(), 5);  // another link holds it to 2, and flow 1 has the rest
  network.advance(5, done);
  EXPECT_THAT(done, testing::UnorderedElementsAre(0, 1, 2));
}

// Rank 1, a leaf, gives its connection the whole vector. What rank 2 sends up goes on as the sums come down again, up
// to three slices at a time, so that rank 1 has most of the root's line first, and the root sends next to nothing
// meanwhile. By a share s of the line rank 1 takes 1 / s of a vector's time, in which (1 - s) / s of rank 2's vector
// come through; what is left of it takes as long as the root needs to send it twice: 4 - 1 / s in all.
TEST(Simulate, WhoSendsAllAtOnceHoldsUpWhoSendsALittle) {
  const Topology star = topology::star(4, one_gigabyte);
  constexpr std::size_t slice = 100'000, slices = 400, bytes = slices * slice;
  const auto time = [&](const char* algorithm, std::size_t window_slices) {
    return simulate(all_reduce(algorithm, 4), star, bytes / 4, 4,
                    {.slice_bytes = slice,
                     .buffered_slices = slices,
                     .in_turn = true,
                     .window_bytes = window_slices * slice})
               .ns /
           bytes;
  };
  EXPECT_NEAR(time("binomial_tree", 0), 2, 0.03);
  for (const std::size_t window : {3, 12}) {
    const auto share = [&](double rank_2) {
      return static_cast<double>(window) / (static_cast<double>(window) + rank_2);
    };
    EXPECT_GT(time("binomial_tree", window), 4 - 1 / share(3)) << window;
    EXPECT_LT(time("binomial_tree", window), 4 - 1 / share(1)) << window;
  }
  EXPECT_GT(time("binomial_tree", 24), time("binomial_tree", 12));
  for (const char* even : {"ring", "halving_doubling", "recursive_doubling", "direct"})
    EXPECT_NEAR(time(even, 12), time(even, 0), 0.01) << even;
}

// Ranks 1 and 3 fill the queue in front of rank 0's line twice as fast as it empties, until each has its window there.
// What rank 2 sends then waits for all of that, and has not just its share of the line.
TEST(Simulate, WhoJoinsAQueueWaitsForWhatStandsInIt) {
  using namespace steps;
  constexpr std::size_t slice = 1000, chunk = 100 * slice;
  const Schedule late{.algorithm = "late", .world = 5, .chunks = 4, .program = [](Rank rank) -> std::vector<Step> {
                        if (rank == 1 || rank == 3) return {send(0, input(0), 0, 4)};
                        if (rank == 4) return {send(2, input(0), 0)};
                        if (rank == 2) return {recv(4, output(0), 0), send(0, output(0), 1)};
                        return {recv(1, output(0), 0, 4), recv(3, output(0), 0, 4), recv(2, output(0), 1)};
                      }};
  constexpr double begins = 50'000;
  Topology star = topology::star(5, one_gigabyte);
  for (Link& link : star.links) {
    if (link.from == 4) link.speed.latency = std::chrono::nanoseconds(std::llround(begins));
    if (link.from == 4 || link.to == 2) link.speed.bytes_per_second = 1e15;  // rank 2 has all of its vector at once
  }
  const auto first = [&](std::size_t window_bytes) {
    const auto run = simulate(
        late, star, 4 * chunk / 4, 4,
        {.slice_bytes = slice, .buffered_slices = 1000, .in_turn = true, .window_bytes = window_bytes, .trace = true});
    return *std::ranges::find_if(run.trace, [](const auto& each) { return each.from == 2 && each.to == 0; });
  };
  const auto joins = first(static_cast<std::size_t>(begins) / 2);
  EXPECT_NEAR(joins.begin_ns, begins, 0.05 * begins);
  EXPECT_NEAR(joins.end_ns - joins.begin_ns, begins, 0.1 * begins);
  const auto shares = first(0);
  EXPECT_LT(shares.end_ns - shares.begin_ns, 0.1 * begins);
}

// A tree's root serves its first child, which passes on, before the others.
TEST(Simulate, SmallTreesAreFasterInTurn) {
  const Schedule tree = all_reduce("binomial_tree", 8);
  const Topology star = topology::star(8, one_gigabyte);
  const auto shared = simulate(tree, star, 8000, 4);
  const auto in_turn = simulate(tree, star, 8000, 4, {.in_turn = true});
  EXPECT_LT(in_turn.ns, 0.95 * shared.ns);
  const double least = contention(tree, star).busiest_load * 32000;
  EXPECT_GE(in_turn.ns, least * (1 - 1e-9));
  const Schedule ring = all_reduce("ring", 8);
  EXPECT_NEAR(simulate(ring, star, 8000, 4, {.in_turn = true}).ns, simulate(ring, star, 8000, 4).ns, 1e-6);
}

// 100 bytes at once, and the rest at one byte a ns; a rest of 60 ns saves 60 up again.
TEST(Fluid, ALinkThatHasRestedPassesItsBucketAtOnce) {
  plan::FluidNetwork network({{1, 100}}, {{{0, 1}}});
  const auto passes = [&](double bytes) {
    network.start(0, bytes);
    double ns = 0;
    std::vector<std::uint32_t> done;
    while (network.flows()) {
      const double next = network.until_next();
      network.advance(next, done);
      ns += next;
    }
    return ns;
  };
  EXPECT_NEAR(passes(400), 300, 3);
  std::vector<std::uint32_t> done;
  network.advance(60, done);
  EXPECT_NEAR(passes(200), 140, 3);
  EXPECT_NEAR(passes(50), 50, 1e-6);
  EXPECT_NEAR(network.carried()[0], 650, 1e-6);
}

TEST(Simulate, OperationsInARowGetNoRest) {
  const Topology shaped =
      topology::star(2, {.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(0), .burst_bytes = 500});
  const Schedule ring = all_reduce("ring", 2);
  EXPECT_LT(simulate(ring, shaped, 500, 4).ns, 1600);  // 2000 bytes, of which 500 at once
  EXPECT_NEAR(simulate(ring, shaped, 500, 4, {.in_a_row = 5}).ns, 2000, 1);
  // What is in step without a rest stays so.
  const Topology star = topology::star(8, one_gigabyte);
  for (const char* name : {"ring", "binomial_tree", "direct"})
    EXPECT_NEAR(simulate(all_reduce(name, 8), star, 2000, 4, {.in_a_row = 4}).ns,
                simulate(all_reduce(name, 8), star, 2000, 4).ns, 1e-3)
        << name;
}

// 2 (p-1) rounds, each a chunk's time and the latency of two links.
TEST(Simulate, ARingTakesItsRounds) {
  for (const Rank world : {2, 3, 8, 13}) {
    const auto run = simulate(all_reduce("ring", world), topology::star(world, one_gigabyte), 250 * world, 4);
    EXPECT_NEAR(run.ns, 2 * (world - 1) * (1000 + 2 * 500), 1e-6) << world;
    EXPECT_TRUE(run.folded);
  }
}

// Everybody sends world - 1 chunks at once over one link, twice.
TEST(Simulate, DirectSharesTheLinkOfEachRank) {
  const auto run = simulate(all_reduce("direct", 5), topology::star(5, one_gigabyte), 250 * 5, 4);
  EXPECT_NEAR(run.ns, 2 * (4 * 1000 + 2 * 500), 1e-6);
  for (const auto& link : run.links) EXPECT_NEAR(link.utilisation, 8000.0 / run.ns, 1e-9) << link.from;
}

// A link that two messages cross takes twice as long: neighbours two apart on a ring.
TEST(Simulate, RoundsThatShareLinksTakeLonger) {
  const LinkSpeed no_latency{.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(0)};
  const auto near = simulate(all_reduce("halving_doubling", 8), topology::star(8, no_latency), 8000, 4);
  const auto far = simulate(all_reduce("halving_doubling", 8), topology::ring(8, no_latency), 8000, 4);
  EXPECT_GT(far.ns, 1.3 * near.ns);
}

TEST(Simulate, SlicesOfALargeVectorStreamThroughTheRounds) {
  // A tree waits for whole vectors without slices; with them all its levels work at once.
  const Schedule tree = all_reduce("binomial_tree", 8);
  const Topology star = topology::star(8, one_gigabyte);
  const auto streamed = simulate(tree, star, 1 << 20, 4, {.slice_bytes = 1 << 16});
  const auto whole = simulate(tree, star, 1 << 20, 4, {.slice_bytes = 1 << 23});
  EXPECT_LT(streamed.ns, 0.7 * whole.ns);
}

TEST(Simulate, ASlowRankSlowsAll) {
  const Schedule ring = all_reduce("ring", 8);
  const Topology star = topology::star(8, one_gigabyte);
  SimulateOptions options{.reduce_bytes_per_ns = 4};
  const auto even = simulate(ring, star, 8000, 4, options);
  options.slowdown.assign(8, 1);
  options.slowdown[5] = 3;
  const auto uneven = simulate(ring, star, 8000, 4, options);
  EXPECT_FALSE(uneven.folded);
  EXPECT_GT(uneven.ns, 1.8 * even.ns);
  EXPECT_LT(uneven.ns, 3 * even.ns + 1);
}

// Never faster than the busiest link can carry.
TEST(Simulate, NoScheduleBeatsTheWire) {
  constexpr Rank world = 12;
  const SimulateOptions over_tcp{.slice_bytes = 1000, .buffered_slices = 40, .in_turn = true, .window_bytes = 16'000};
  for (const Algorithm& algorithm : algorithms()) {
    if (std::ranges::count(algorithm.collectives, Collective::all_reduce) == 0) continue;
    const Schedule schedule = all_reduce(algorithm.name, world);
    for (const char* spec : {"star", "ring", "torus:3x4", "mesh:2x6", "fat_tree:4,oversubscription=2"}) {
      Topology topology = make_topology(spec, world);
      for (Link& link : topology.links) link.speed = one_gigabyte;
      constexpr std::size_t count = 12 * 11 * 10 * 9;
      const double least = contention(schedule, topology).busiest_load * count * 4;
      for (const SimulateOptions& options : {SimulateOptions{}, over_tcp}) {
        const auto run = simulate(schedule, topology, count, 4, options);
        EXPECT_GE(run.ns, least * (1 - 1e-9)) << algorithm.name << " on " << spec;
        for (const auto& link : run.links) EXPECT_LE(link.utilisation, 1 + 1e-9);
      }
    }
  }
}

// Long vectors are not simulated slice by slice, and take as long as if they were, within 1 % where time does not grow
// by a line.
void expect_streams(const Schedule& schedule, const Topology& topology, std::size_t chunk,
                    const SimulateOptions& options) {
  SCOPED_TRACE(fmt::format("{} of {} on {}", schedule.algorithm, schedule.world, topology.name));
  const auto all = simulate(schedule, topology, chunk * schedule.chunks, 4, options);
  const auto streamed = plan::streamed(schedule, topology, chunk, 4, options);
  // Rings, which fold, are on a line.
  const double error = all.folded ? 1e-5 : 0.01;
  EXPECT_NEAR(streamed.ns / all.ns, 1, error);
  ASSERT_EQ(streamed.links.size(), all.links.size());
  for (std::size_t i = 0; i < all.links.size(); ++i)
    EXPECT_NEAR(streamed.links[i].utilisation, all.links[i].utilisation, error);
}

Topology of_one_gigabyte(std::string_view spec, Rank world) {
  Topology topology = make_topology(spec, world);
  for (Link& link : topology.links) link.speed = one_gigabyte;
  return topology;
}

TEST(Streaming, ChangesLittle) {
  constexpr std::size_t slice_bytes = 400;
  for (const Algorithm& algorithm : algorithms()) {
    if (std::ranges::count(algorithm.collectives, Collective::all_reduce) == 0) continue;
    for (const char* spec : {"star", "torus:2x4"})
      expect_streams(all_reduce(algorithm.name, 8), of_one_gigabyte(spec, 8), 1031 * slice_bytes / 4 + 30,
                     {.slice_bytes = slice_bytes});
  }
}

// Pipelines of many rounds take long to fill: the first slices say nothing of the later ones.
TEST(Streaming, WaitsUntilPipelinesAreFull) {
  constexpr std::size_t slice_bytes = 1 << 17;
  for (const auto& [world, slices] : {std::pair<Rank, std::size_t>{12, 254}, {16, 190}, {24, 127}})
    for (const std::size_t rest : {0, 10922})
      expect_streams(all_reduce("round_robin", world), of_one_gigabyte("fully_connected", world),
                     slices * slice_bytes / 4 + rest, {.slice_bytes = slice_bytes});
  for (const char* spec : {"torus:2x8", "star", "fat_tree:4"})
    for (const std::size_t slices : {23, 95, 400})
      expect_streams(all_reduce("bidirectional_ring", 16), of_one_gigabyte(spec, 16), slices * slice_bytes / 4,
                     {.slice_bytes = slice_bytes});
}

// Whatever is simulated of either.
TEST(Streaming, IsTheSameFoldedOrNot) {
  for (const char* algorithm : {"ring", "bidirectional_ring", "direct"})
    for (const std::size_t slices : {30, 300, 3000}) {
      SCOPED_TRACE(fmt::format("{} slices of {}", slices, algorithm));
      const Schedule schedule = all_reduce(algorithm, 8);
      const Topology star = of_one_gigabyte("star", 8);
      SimulateOptions options{.slice_bytes = 400};
      const auto one = plan::streamed(schedule, star, slices * 100 + 30, 4, options);
      options.fold = false;
      const auto all = plan::streamed(schedule, star, slices * 100 + 30, 4, options);
      EXPECT_TRUE(one.folded && !all.folded);
      EXPECT_NEAR(one.ns / all.ns, 1, 1e-6);
    }
}

// That ranks do the same is proven once for all lengths whose chunks are cut alike.
TEST(Streaming, IsTheSameWithWhatIsKnownOfShorterOnes) {
  for (const char* algorithm : {"ring", "direct", "halving_doubling", "recursive_doubling"}) {
    const Schedule schedule = all_reduce(algorithm, 16);
    const Topology star = of_one_gigabyte("star", 16);
    plan::Symmetry known;
    for (const std::size_t chunk : {3, 100, 130, 777, 8000, 90'000}) {
      SCOPED_TRACE(fmt::format("{} elements in a chunk of {}", chunk, algorithm));
      const SimulateOptions options{.slice_bytes = 400};
      const auto anew = plan::streamed(schedule, star, chunk, 4, options);
      const auto again = plan::streamed(schedule, star, chunk, 4, options, &known);
      EXPECT_EQ(again.folded, anew.folded);
      EXPECT_EQ(again.ns, anew.ns);
    }
    EXPECT_FALSE(known.empty());
  }
}

// Where all of it is too much to simulate, and even the pipeline is not full, a line says nothing that links cannot do.
TEST(Streaming, NeverBeatsTheWire) {
  const Schedule schedule = all_reduce("round_robin", 64);
  const Topology cables = of_one_gigabyte("fully_connected", 64);
  const double load = contention(schedule, cables).busiest_load;
  for (const std::size_t slices : {188, 1000}) {
    const std::size_t chunk = slices << 15;
    const auto run = plan::streamed(schedule, cables, chunk, 4, {});
    EXPECT_GE(run.ns, load * static_cast<double>(chunk * schedule.chunks * 4) * (1 - 1e-9));
    for (const auto& link : run.links) EXPECT_LE(link.utilisation, 1 + 1e-9);
    if (slices > 200) continue;
    const auto all = simulate(schedule, cables, chunk * schedule.chunks, 4);
    EXPECT_NEAR(run.ns / all.ns, 1, 0.1);
  }
}

// No collective is quicker than its bound, which is not idle: of the ring without latency it is the time itself.
TEST(Bounds, AreNeverAboveTheTime) {
  const Workload undivided{.name = "all"};
  for (const Algorithm& algorithm : algorithms()) {
    if (std::ranges::count(algorithm.collectives, Collective::all_reduce) == 0) continue;
    for (const char* spec : {"star", "ring", "torus:3x4", "mesh:2x6", "fat_tree:4,oversubscription=2"}) {
      Topology topology = make_topology(spec, 12);
      for (Link& link : topology.links) {
        link.speed = one_gigabyte;
        link.speed.burst_bytes = 3000;
      }
      plan::CollectiveTimes times(undivided, topology, {});
      for (const double bytes : {4.0, 1e3, 1e5, 3e6}) {
        const Communication what{.collective = Collective::all_reduce, .bytes = bytes};
        const std::string name(algorithm.name);
        EXPECT_LE(times.at_least(what, name).ns, times.run(what, name).ns * (1 + 1e-9))
            << name << " on " << spec << ", " << bytes << " bytes";
      }
    }
  }
  const Topology star = topology::star(8, {.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(0)});
  plan::CollectiveTimes times(undivided, star, {});
  const Communication what{.collective = Collective::all_reduce, .bytes = 32e3};
  EXPECT_NEAR(times.at_least(what, "ring").ns, times.run(what, "ring").ns, 1e-6);
}

Workload two_layers(double compute, double bytes) {
  Workload workload{.name = "two", .degrees = {}, .layers = {{.name = "first"}, {.name = "second"}}};
  for (Layer& layer : workload.layers) {
    layer.forward.compute_ns = layer.input_gradient.compute_ns = layer.weight_gradient.compute_ns = compute;
    layer.weight_gradient.communications = {{Collective::all_reduce, bytes, Role::data}};
  }
  return workload;
}

// A ring of 2 on links of 1 byte a ns: 2 rounds of half of the bytes. The second layer's gradients travel while the
// first one's are computed; the first one's cannot hide.
TEST(Step, HidesWhatItCanBehindTheBackwardPass) {
  const Topology star = topology::star(2, {.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(0)});
  const auto quick = simulate_step(two_layers(1000, 400), star, {.bucket_bytes = 1});
  EXPECT_NEAR(quick.compute_ns, 6000, 1e-9);
  EXPECT_NEAR(quick.exposed_communication_ns, 400, 1e-6);
  EXPECT_NEAR(quick.communication_ns, 800, 1e-6);
  const auto slow = simulate_step(two_layers(1000, 5000), star, {.bucket_bytes = 1});
  EXPECT_NEAR(slow.step_ns, 4000 + 10'000, 1e-6);  // the first bucket is ready after 4000
  const auto together = simulate_step(two_layers(1000, 5000), star, {.bucket_bytes = 1e9});
  EXPECT_NEAR(together.step_ns, 6000 + 10'000, 1e-6);
}

TEST(Simulate, RefusesNumbersOfNothingAndLinksThatCarryNothing) {
  const auto run = [](const LinkSpeed& speed, std::size_t element_bytes, const SimulateOptions& options) {
    simulate(ring(Collective::all_reduce, 4), topology::star(4, speed), 1000, element_bytes, options);
  };
  EXPECT_NO_THROW(run({}, 4, {}));
  EXPECT_THROW(run({}, 0, {}), Error);
  EXPECT_THROW(run({}, 4, {.slice_bytes = 0}), Error);
  EXPECT_THROW(run({}, 4, {.buffered_slices = 0}), Error);
  EXPECT_THROW(run({}, 4, {.in_a_row = 0}), Error);
  EXPECT_THROW(run({}, 4, {.at_once = 0}), Error);
  for (const double rate : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(run({.bytes_per_second = rate}, 4, {}), Error);
  EXPECT_THROW(run({.latency = std::chrono::nanoseconds(-5)}, 4, {}), Error);
}

TEST(Simulate, RefusesFactorsAndGridsThatAreNotOfItsWorld) {
  const auto run = [](const SimulateOptions& options) {
    simulate(ring(Collective::all_reduce, 4), topology::star(4), 1000, 4, options);
  };
  EXPECT_NO_THROW(run({.slowdown = {1, 2, 1, 1}, .grid = {2, 2}}));
  for (const std::vector<double>& factors : {std::vector<double>{2}, {1, 1, 1, 1, 9}, {1, 1, 0, 1}, {1, 1, -1, 1}})
    EXPECT_THROW(run({.slowdown = factors}), Error);
  EXPECT_THROW(run({.slowdown = {1, 1, std::numeric_limits<double>::quiet_NaN(), 1}}), Error);
  for (const std::vector<Rank>& sizes : {std::vector<Rank>{3}, {2, 4}, {0, 4}, {-2, -2}})
    EXPECT_THROW(run({.grid = sizes}), Error);
}

TEST(Step, OfAWorkloadThatSendsNothingIsItsComputing) {
  const auto step = simulate_step(two_layers(5, 0), topology::star(4), {});
  EXPECT_EQ(step.step_ns, 30);
  EXPECT_EQ(step.exposed_communication_ns, 0);
}

TEST(Step, RefusesDegreesThatDoNotMakeTheWorld) {
  EXPECT_THROW(simulate_step(make_workload("gpt3"), topology::star(24)), Error);
}

}  // namespace
}  // namespace ranvier
