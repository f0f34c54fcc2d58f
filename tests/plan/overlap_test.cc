// Buckets under way at once: shares of links that can be told by heart, and collectives simulated together, message by
// message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "plan/simple_layers.h"
#include "plan/simulate/overlap.h"
#include "plan/simulate/step.h"
#include "ranvier/schedule.h"
#include "ranvier/simulate.h"

namespace ranvier {
namespace {

// On a network of two links.
SimulatedRun busy(double ns, double one, double other) {
  return {.ns = ns,
          .links = {{.from = "rank 0", .to = "switch", .utilisation = one},
                    {.from = "switch", .to = "rank 0", .utilisation = other}}};
}
const Topology two_links = topology::star(1, one_byte_a_ns);

TEST(Overlap, SharesWhatSeveralNeed) {
  plan::CommonLinks links(two_links);
  plan::SharedRates rates(links);
  const SimulatedRun full = busy(100, 1, 0.2);
  const SimulatedRun half = busy(100, 0.5, 0);
  const SimulatedRun other = busy(100, 0, 0.5);
  using testing::DoubleEq;
  using testing::ElementsAre;
  EXPECT_THAT(rates.among({{&full, 1}}, nullptr), ElementsAre(1));
  EXPECT_THAT(rates.among({{&full, 1}, {&full, 1}}, nullptr), ElementsAre(0.5, 0.5));
  EXPECT_THAT(rates.among({{&half, 1}, {&half, 1}}, nullptr), ElementsAre(1, 1));
  EXPECT_THAT(rates.among({{&full, 1}, {&half, 1}}, nullptr), ElementsAre(DoubleEq(1 / 1.5), DoubleEq(1 / 1.5)));
  // What is held up on one link leaves more of the others.
  EXPECT_THAT(rates.among({{&full, 1}, {&full, 1}, {&other, 1}}, nullptr), ElementsAre(0.5, 0.5, 1));
  // Who is first has its share before them.
  EXPECT_THAT(rates.among({{&full, 1}, {&other, 1}}, &half), ElementsAre(0.5, 1));
  EXPECT_THAT(rates.among({{&half, 1}}, &full), ElementsAre(0));
  // One codec for all, and the link for as much less of the time.
  EXPECT_THAT(rates.among({{&full, 0.5}, {&full, 0.5}}, nullptr), ElementsAre(1, 1));
  EXPECT_THAT(rates.among({{&full, 0.2}, {&full, 0.2}}, nullptr), ElementsAre(DoubleEq(1 / 1.6), DoubleEq(1 / 1.6)));
}

TEST(Overlap, LanesAreTakenInTurn) {
  plan::CommonLinks links(two_links);
  plan::SharedRates rates(links);
  const SimulatedRun long_one = busy(1000, 0.25, 0);
  const SimulatedRun short_one = busy(100, 0.25, 0);
  plan::Overlap overlap(rates, 2);
  for (const auto* run : {&long_one, &short_one, &short_one, &short_one})
    overlap.start({.run = run, .sending_ns = run->ns, .codec_ns = 0});
  overlap.go_on_until(150);
  EXPECT_NEAR(overlap.finish(), 1100, 1e-6);
  const auto& all = overlap.operations();
  EXPECT_FALSE(all[1].behind);
  EXPECT_EQ(all[2].behind, 0);  // though the other lane is free
  EXPECT_NEAR(all[2].begin_ns, 1000, 1e-6);
  EXPECT_NEAR(all[3].begin_ns, 100, 1e-6);
  EXPECT_NEAR(all[3].end_ns, 200, 1e-6);
  double exposed = 0;
  for (const auto& each : all) exposed += each.exposed_ns;
  EXPECT_NEAR(exposed, 1100 - 150, 1e-6);
}

// What shares of links say of collectives that begin one after another, against their messages on the same links. It is
// never above what those take, and as a rule near it; one after the other they would take up to four times as long.
TEST(Overlap, IsAsLongAsMessagesSay) {
  constexpr std::size_t in_a_row = 6;
  std::vector<double> errors;
  double most_gained = 0;
  for (const char* spec : {"star", "ring", "torus:4x4", "fat_tree:4,oversubscription=2"})
    for (const char* algorithm : {"ring", "direct", "halving_doubling", "torus:4x4", "hierarchical:4", "swing"})
      for (const double bytes : {2e3, 1e5, 1e6, 2e7})
        for (const std::size_t lanes : {2, 4}) {
          SCOPED_TRACE(fmt::format("{} of {} bytes on {}, {} at once", algorithm, bytes, spec, lanes));
          Topology topology = make_topology(spec, 16);
          for (Link& link : topology.links)
            link.speed = {.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(20'000)};
          const AlgorithmSpec parsed = parse_algorithm(algorithm);
          const Schedule schedule =
              parsed.algorithm().build({.collective = Collective::all_reduce, .world = 16, .dims = parsed.dims});
          const std::size_t count = static_cast<std::size_t>(std::ceil(bytes / 4 / schedule.chunks)) * schedule.chunks;
          const double alone = simulate(schedule, topology, count, 4).ns;
          const SimulateOptions several{
              .in_a_row = in_a_row, .at_once = lanes, .apart_ns = 0.37 * alone / static_cast<double>(lanes)};
          const double by_message = simulate(schedule, topology, count, 4, several).ns;
          const auto step_ns = [&](std::size_t buckets) {
            const Workload workload{.layers = std::vector<Layer>(buckets, layer(0, bytes))};
            const StepSimulation how{.algorithm = algorithm, .bucket_bytes = 1, .at_once = lanes};
            return simulate_step(workload, topology, how).step_ns;
          };
          const double by_shares =
              (step_ns(in_a_row * lanes) - step_ns(lanes)) / static_cast<double>((in_a_row - 1) * lanes);
          errors.push_back(by_shares / by_message - 1);
          EXPECT_GE(errors.back(), -0.4);
          EXPECT_LE(errors.back(), 0.03);
          most_gained = std::max(most_gained, alone / by_message);
        }
  std::ranges::sort(errors);
  EXPECT_GE(errors[errors.size() / 2], -0.02);
  EXPECT_GE(errors[errors.size() / 10], -0.2);
  EXPECT_GE(most_gained, 3.9);
}

// A ring's ranks are alike and one of them stands for all, a broadcast's are not, and a sum inside nodes has a few
// kinds: what is busy with several of them is any rank's links.
TEST(Overlap, WhoStandsForAllSharesTheLinksOfAll) {
  for (const char* spec : {"star", "ring", "torus:4x6", "fat_tree:4", "fully_connected"})
    for (const char* algorithm : {"ring", "hierarchical:4", "binomial_tree"}) {
      SCOPED_TRACE(fmt::format("{} on {}", algorithm, spec));
      Topology topology = make_topology(spec, 24);
      for (Link& link : topology.links) link.speed = {.bytes_per_second = 1e9};
      Workload workload{.degrees = {.tensor = 4}, .layers = {layer(1e5, 3e6), layer(1e5, 2e6), layer(1e5, 3e6)}};
      workload.layers[1].weight_gradient.communications.push_back({Collective::broadcast, 3e6, Role::data});
      workload.layers[0].weight_gradient.communications.push_back({Collective::all_gather, 2e5, Role::data});
      workload.layers[0].input_gradient.communications = {{Collective::all_reduce, 1e6, Role::tensor}};
      const auto predicted = [&](bool fold) {
        return simulate_step(workload, topology,
                             {.algorithm = algorithm, .bucket_bytes = 1, .options = {.fold = fold}});
      };
      const auto busiest = [](const StepPrediction& step) {
        return std::ranges::max_element(step.links, {}, &SimulatedLink::utilisation)->utilisation;
      };
      const auto by_kinds = predicted(true);
      const auto one_by_one = predicted(false);
      EXPECT_NEAR(by_kinds.step_ns, one_by_one.step_ns, 1e-9 * one_by_one.step_ns);
      EXPECT_NEAR(by_kinds.exposed_communication_ns, one_by_one.exposed_communication_ns, 1e-9 * one_by_one.step_ns);
      EXPECT_NEAR(busiest(by_kinds), busiest(one_by_one), 1e-9);
      EXPECT_LE(busiest(by_kinds), 1 + 1e-9);
    }
}

// The bound that the planner leaves candidates out by.
TEST(Overlap, BoundsAreNeverAboveTheTime) {
  for (const char* spec : {"star", "ring", "torus:3x4", "fat_tree:4,oversubscription=2"})
    for (const Algorithm& algorithm : algorithms()) {
      if (std::ranges::count(algorithm.collectives, Collective::all_reduce) == 0) continue;
      Topology topology = make_topology(spec, 12);
      for (Link& link : topology.links)
        link.speed = {.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(5000)};
      for (const double bytes : {1e3, 1e5, 1e6})
        for (const double codec : {0.0, 0.3}) {
          Workload workload{.idle_ns = 100};
          for (int i = 0; i < 11; ++i) workload.layers.push_back(layer(bytes / 20, bytes * (1 + i % 3)));
          plan::CollectiveTimes times(workload, topology, {});
          const StepSimulation how{
              .algorithm = std::string(algorithm.name), .bucket_bytes = 2 * bytes, .codec_ns_per_byte = codec};
          EXPECT_LE(plan::least_step_ns(workload, how, times),
                    plan::simulate_step(workload, how, times).step_ns * (1 + 1e-9))
              << algorithm.name << " on " << spec << ", " << bytes << " bytes";
        }
    }
}

// Two ranks, one byte a ns: four buckets of 400 take 1600 whether they share the link or not; with latency, what one
// waits for is hidden behind the others.
TEST(Overlap, HidesLatencyAndNoBytes) {
  Workload workload;
  for (int i = 0; i < 4; ++i) workload.layers.push_back(layer(0, 400));
  const auto step_ns = [&](int latency_ns, std::size_t at_once) {
    const Topology star = topology::star(2, {.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(latency_ns)});
    return simulate_step(workload, star, {.bucket_bytes = 1, .at_once = at_once}).step_ns;
  };
  EXPECT_NEAR(step_ns(0, 1), 1600, 1e-6);
  EXPECT_NEAR(step_ns(0, 4), 1600, 1e-6);
  EXPECT_NEAR(step_ns(1000, 1), 4 * (400 + 4 * 1000), 1e-6);
  EXPECT_NEAR(step_ns(1000, 4), 400 + 4 * 1000, 1e-6);
}

}  // namespace
}  // namespace ranvier
