// Sums in switches, beside the model of `ranvier design` and times that can be told by heart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

#include "plan/simple_layers.h"
#include "ranvier/error.h"
#include "ranvier/network.h"
#include "ranvier/simulate.h"
#include "ranvier/workload.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

// `rates` of one link, in bytes a ns, by dimension.
Topology shaped(std::string_view text, std::span<const double> rates, int latency_ns = 0) {
  Topology topology = topology_of(parse_network(text), {});
  for (Link& link : topology.links)
    link.speed = {.bytes_per_second = rates[static_cast<std::size_t>(link.dimension)] * 1e9,
                  .latency = std::chrono::nanoseconds(latency_ns)};
  return topology;
}

double summed_ns(const Topology& topology, std::size_t bytes, const SimulateOptions& options) {
  const SwitchSum sum = summed_by_switches(topology, static_cast<double>(bytes), options.slice_bytes);
  const std::size_t chunks = sum.schedule.chunks;
  const std::size_t count = (bytes / 4 + chunks - 1) / chunks * chunks;
  const SimulatedRun run = simulate(sum.schedule, sum.topology, count, 4, options);
  for (const auto& link : run.links) EXPECT_LE(link.utilisation, 1 + 1e-9) << link.from << " -> " << link.to;
  return run.ns;
}

// A vector of one slice passes one dimension after the other.
TEST(InNetwork, ASliceGoesThroughTheDimensionsOneByOne) {
  constexpr std::size_t bytes = 12288;
  const SimulateOptions one_slice{.slice_bytes = bytes};
  const auto ns = [&](std::string_view shape, std::vector<double> rates) {
    return summed_ns(shaped(shape, rates, 10), bytes, one_slice);
  };
  EXPECT_NEAR(ns("SW(8)", {2}), bytes / 2.0 + 2 * 10, 1e-6);
  // To the inner switch all, of which a quarter comes down; through the outer one that quarter; and from the inner one
  // all, of which each rank has sent a quarter.
  EXPECT_NEAR(ns("SW(4)_SW(4)", {1, 2}), bytes + bytes / 4.0 / 2 + bytes + 6 * 10, 1e-6);
  // Pairs do it by themselves: half of it to the other one, and back.
  EXPECT_NEAR(ns("SW(2)_SW(4)", {1, 2}), bytes / 2.0 + bytes / 2.0 / 2 + bytes / 2.0 + 6 * 10, 1e-6);
  EXPECT_NEAR(ns("FC(4)_SW(8)", {1, 1}), bytes / 4.0 * 3 + 4 * 10, 1e-6);
  // Around a ring of three both ways, each third to its neighbours; an outer ring has what an inner switch has left.
  EXPECT_NEAR(ns("RI(3)_SW(4)", {1, 1}), bytes / 3.0 * 3 + 4 * 10, 1e-6);
  EXPECT_NEAR(ns("SW(4)_RI(3)", {1, 1}), 2 * bytes + 2 * bytes / 12.0 + 6 * 10, 1e-6);
}

// What the network is designed by (collective_loads.cc) and what is simulated say the same of long vectors: no less,
// and no more than the time to fill and drain the dimensions.
TEST(InNetwork, OfLongVectorsTakesWhatTheDesignSays) {
  struct Case {
    const char* shape;
    std::vector<double> rates;  // of a link
  };
  const std::vector<Case> cases{
      {"SW(16)", {1}},
      {"RI(4)_SW(8)", {1, 1}},
      {"RI(4)_SW(8)", {8, 1}},
      {"RI(5)_SW(4)", {1, 4}},
      {"FC(4)_SW(8)", {1, 1}},
      {"FC(4)_SW(8)", {1, 8}},
      {"SW(4)_SW(8)", {1, 1}},
      {"SW(4)_SW(8)", {8, 1}},
      {"SW(3)_RI(4)", {1, 1}},
      {"SW(2)_SW(8)", {1, 1}},
      {"SW(8)_FC(3)", {1, 4}},
      {"RI(3)_SW(4)_SW(3)", {1, 2, 0.25}},
      {"SW(4)_SW(3)_RI(3)", {2, 1, 1}},
      {"RI(4)_FC(4)_RI(3)_SW(4)", {1, 1, 1, 1}},
  };
  constexpr std::size_t bytes = 3 << 20;
  for (const auto& [text, rates] : cases) {
    SCOPED_TRACE(fmt::format("{} at {}", text, fmt::join(rates, ", ")));
    const NetworkShape shape = parse_network(text);
    std::vector<double> of_npus;
    NetworkEffects effects;
    Placement placement;
    for (std::size_t i = 0; i < rates.size(); ++i) {
      const auto& [block, size, tier] = shape.dimensions[i];
      of_npus.push_back(rates[i] * (block == Block::ring ? 2 : block == Block::fully_connected ? size - 1 : 1));
      effects.in_network_reduction.push_back(true);
      placement.of(Role::data).push_back(size);
    }
    const Workload workload{.layers = {layer(0, static_cast<double>(bytes))}};
    const double designed = step_ns(step_time(workload, placement, shape, {.effects = effects}), of_npus);
    const SimulateOptions options{.slice_bytes = 1 << 14};
    const double simulated = summed_ns(shaped(text, rates), bytes, options);
    EXPECT_GE(simulated, designed * (1 - 1e-9));
    EXPECT_LE(simulated, designed * 1.05);
    // As a step, and rank by rank.
    const StepSimulation how{.algorithm = std::string(in_network), .options = options};
    EXPECT_NEAR(simulate_step(workload, shaped(text, rates), how).step_ns / simulated, 1, 1e-3);
    SimulateOptions whole = options;
    whole.fold = false;
    const SwitchSum sum = summed_by_switches(shaped(text, rates), 1e5, options.slice_bytes);
    const std::size_t count = 100 * sum.schedule.chunks;
    const auto one = simulate(sum.schedule, sum.topology, count, 4, options);
    const auto all = simulate(sum.schedule, sum.topology, count, 4, whole);
    EXPECT_TRUE(one.folded);
    EXPECT_NEAR(one.ns, all.ns, 1e-9 * all.ns);
  }
}

// Tensor groups of two in each ring of four: data groups have the other two of it, two apart, and the switch.
TEST(InNetwork, OfPartsOfADimension) {
  const Workload workload{.degrees = {.tensor = 2}, .layers = {layer(0, 4000)}};
  for (const bool fold : {true, false}) {
    const StepSimulation how{.algorithm = std::string(in_network), .options = {.fold = fold}};
    // Half to the other one and back, half around the ring, or by the switch, and between them through the outer one.
    const std::vector<double> rates{2, 1};
    EXPECT_NEAR(simulate_step(workload, shaped("RI(4)_SW(4)", rates), how).step_ns, 1000 + 2000 + 1000, 1e-6) << fold;
    EXPECT_NEAR(simulate_step(workload, shaped("SW(4)_SW(4)", rates), how).step_ns, 1000 + 2000 + 1000, 1e-6) << fold;
  }
  const Workload thirds{.degrees = {.tensor = 3}, .layers = {layer(0, 4000)}};
  const StepSimulation how{.algorithm = std::string(in_network)};
  EXPECT_THAT(support::refusal([&] { simulate_step(thirds, topology_of(parse_network("SW(4)_SW(3)"), {}), how); }),
              testing::HasSubstr("do not have even parts of the dimensions of SW(4)_SW(3)"));
}

TEST(InNetwork, NeedsSwitchesWithAllTheirCables) {
  const auto refused = [](const Topology& topology) {
    return support::refusal([&] { summed_by_switches(topology, 1e6, 1 << 17); });
  };
  EXPECT_THAT(refused(topology::ring(8)), testing::HasSubstr("ring has no switches"));
  EXPECT_THAT(refused(topology_of(parse_network("RI(4)_FC(2)"), {})),
              testing::HasSubstr("RI(4)_FC(2) has no switches"));
  EXPECT_THAT(refused(without_cables(topology_of(parse_network("RI(4)_SW(2)"), {}), {{0, 1}})),
              testing::HasSubstr("with all of its cables"));
}

TEST(InNetwork, OfLargeShapesIsFolded) {
  const NetworkShape shape = parse_network("RI(8)_FC(8)_RI(8)_SW(256)");
  const Workload workload{.layers = {layer(0, 200e6)}};
  const std::vector<double> rates{20, 4, 5, 1};
  const Topology topology = shaped("RI(8)_FC(8)_RI(8)_SW(256)", rates, 100);
  Placement placement;
  placement.of(Role::data) = {8, 8, 8, 256};
  const std::vector<double> of_npus{40, 28, 10, 1};
  const double designed = step_ns(
      step_time(workload, placement, shape, {.effects = {.in_network_reduction = {true, true, true, true}}}), of_npus);
  const double simulated = simulate_step(workload, topology, {.algorithm = std::string(in_network)}).step_ns;
  EXPECT_GE(simulated, designed * (1 - 1e-9));
  EXPECT_LE(simulated, designed * 1.05);
}

}  // namespace
}  // namespace ranvier
