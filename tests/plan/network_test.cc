// Shapes, costs, what collectives send in each dimension, and which dimensions groups span.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ranvier/error.h"
#include "ranvier/network.h"
#include "ranvier/topology.h"
#include "ranvier/workload.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using support::refusal;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Network, IsReadAndWritten) {
  const NetworkShape shape = parse_network("RI(4)_FC(8)_RI(4)_SW(32)");
  EXPECT_EQ(shape.npus(), 4096);
  EXPECT_EQ(to_string(shape), "RI(4)_FC(8)_RI(4)_SW(32)");
  EXPECT_EQ(shape.dimensions[1].block, Block::fully_connected);
  EXPECT_EQ(shape.dimensions[0].tier, Tier::chiplet);
  EXPECT_EQ(shape.dimensions[3].tier, Tier::pod);
}

TEST(Network, CostsWhatItsTiersCost) {
  EXPECT_THAT(unit_costs(parse_network("RI(4)_FC(8)_RI(4)_SW(32)")), ElementsAre(2, 4, 4, 57.4));
  EXPECT_THAT(unit_costs(parse_network("RI(16)_FC(8)_SW(32)")), ElementsAre(4, 4, 57.4));
  EXPECT_THAT(unit_costs(parse_network("SW(16)_SW(32)")), ElementsAre(17, 57.4));
}

TEST(Network, ThatDoesNotParseNamesTheColumn) {
  for (const auto& [text, part] :
       std::vector<std::pair<std::string, std::string>>{{"", "column 1: a dimension is missing"},
                                                        {"RI(4)_XX(8)", "column 7: 'XX' is no kind"},
                                                        {"RI4", "column 3: '('"},
                                                        {"RI(x)", "column 4: a size"},
                                                        {"RI(1)", "column 4: a size"},
                                                        {"RI(-4)", "column 4: a size"},
                                                        {"RI(4", "column 5: ')' is missing"},
                                                        {"RI(4)FC(8)", "column 6: '_' is missing"},
                                                        {"RI(4)_", "column 7: a dimension is missing"},
                                                        {"RI(2000000000)_RI(2000000000)", "more than 2147483648 NPUs"},
                                                        {"RI(99999999999999999999)", "column 4: a size"}})
    EXPECT_THAT(refusal([&text = text] { parse_network(text); }), HasSubstr(part)) << text;
}

TEST(Traffic, OfEachCollective) {
  const GroupSizes group{4, 1, 2};
  EXPECT_THAT(bytes_by_dimension(Collective::all_reduce, 800, group), ElementsAre(1200, 0, 200));
  EXPECT_THAT(bytes_by_dimension(Collective::reduce_scatter, 800, group), ElementsAre(600, 0, 100));
  EXPECT_THAT(bytes_by_dimension(Collective::all_gather, 100, group), ElementsAre(600, 0, 100));
  EXPECT_THAT(bytes_by_dimension(Collective::all_to_all, 800, group), ElementsAre(600, 0, 400));
  EXPECT_THAT(bytes_by_dimension(Collective::send, 800, group), ElementsAre(800, 0, 0));
  // Everybody gets, or adds to, the whole vector, whichever dimension it comes by.
  for (const Collective each : {Collective::broadcast, Collective::reduce, Collective::neighbor_exchange})
    EXPECT_THAT(bytes_by_dimension(each, 800, group), ElementsAre(800, 0, 800)) << name_of(each);
  // The root has every part but its own on its links, as all have in an all_gather.
  for (const Collective each : {Collective::gather, Collective::scatter})
    EXPECT_THAT(bytes_by_dimension(each, 100, group), ElementsAre(600, 0, 100)) << name_of(each);
}

TEST(Placement, GivesTheInnermostDimensionsToTensorGroups) {
  const NetworkShape shape = parse_network("RI(4)_FC(8)_SW(32)");
  const Placement placement = place({.tensor = 8, .expert = 4, .pipeline = 8}, shape);
  EXPECT_THAT(placement.of(Role::tensor), ElementsAre(4, 2, 1));
  EXPECT_THAT(placement.of(Role::expert), ElementsAre(1, 4, 1));
  EXPECT_THAT(placement.of(Role::expert_data), ElementsAre(1, 1, 4));
  EXPECT_THAT(placement.of(Role::data), ElementsAre(1, 4, 4));
  EXPECT_THAT(placement.of(Role::pipeline), ElementsAre(1, 1, 8));
}

TEST(Placement, RefusesWhatDoesNotFit) {
  const NetworkShape shape = parse_network("RI(4)_FC(8)_SW(32)");
  EXPECT_THAT(refusal([&] { place({.tensor = 3}, shape); }), HasSubstr("of 3 x 1 does not divide the 1024 NPUs of"));
  EXPECT_THAT(refusal([&] { place({.tensor = 8, .data = 64}, shape); }), HasSubstr("8 x 64 x 1 = 512, but"));
  EXPECT_THAT(refusal([&] { place({.expert = 3}, shape); }), HasSubstr("does not divide data parallelism of 1024"));
  const NetworkShape odd = parse_network("RI(6)_SW(4)");
  EXPECT_THAT(refusal([&] { place({.tensor = 4}, odd); }), HasSubstr("dimension 0 of RI(6)_SW(4)"));
}

// What is left out of the published model, on numbers that can be done by hand.
TEST(Effects, ChangeWhatTheyShould) {
  const NetworkShape shape = parse_network("FC(8)_SW(4)");
  Workload workload{.name = "one", .degrees = {}, .layers = {{.name = "layer"}}};
  workload.layers[0].weight_gradient = {.compute_ns = 5, .communications = {{Collective::all_reduce, 800, Role::data}}};
  Placement placement;
  placement.of(Role::data) = {4, 4};
  const auto with = [&](const StepOptions& options) { return step_time(workload, placement, shape, options); };
  const std::vector<double> ample{1e6, 1}, narrow{1, 1e6};
  EXPECT_NEAR(step_ns(with({}), narrow), 5 + 1200, 1e-9);
  EXPECT_NEAR(step_ns(with({}), ample), 5 + 300, 1e-9);
  // 4 of 8 have 3 of 7 links.
  EXPECT_NEAR(step_ns(with({.effects = {.partial_groups = true}}), narrow), 5 + 1200 * 7.0 / 3, 1e-9);
  EXPECT_NEAR(step_ns(with({.effects = {.oversubscription = {1, 3}}}), ample), 5 + 900, 1e-9);
  // The outermost switch takes the 200 bytes once.
  EXPECT_NEAR(step_ns(with({.effects = {.in_network_reduction = {false, true}}}), ample), 5 + 200, 1e-9);
  // Further in the sum comes back as well: 800 + 400 bytes in a pair, which sends 800 without the switch's help.
  const NetworkShape inner = parse_network("SW(2)_SW(4)");
  placement.of(Role::data) = {2, 4};
  const StepTime pairs = step_time(workload, placement, inner, {.effects = {.in_network_reduction = {true, false}}});
  EXPECT_NEAR(step_ns(pairs, narrow), 5 + 800, 1e-9);
  placement.of(Role::data) = {4, 4};
  // Two messages in the group of direct links, 2 log2(4) through the switch.
  EXPECT_NEAR(step_ns(with({.effects = {.latency_ns = {10, 100}}}), ample), 5 + 300 + 2 * 10 + 4 * 100, 1e-9);
}

// How many links the shortest way from each vertex to each other has.
std::vector<std::vector<std::size_t>> distances(const Topology& topology) {
  const auto vertices = static_cast<std::size_t>(topology.world) + static_cast<std::size_t>(topology.switches);
  std::vector<std::vector<std::size_t>> far(vertices, std::vector<std::size_t>(vertices, vertices));
  for (std::size_t i = 0; i < vertices; ++i) far[i][i] = 0;
  for (const Link& link : topology.links)
    far[static_cast<std::size_t>(link.from)][static_cast<std::size_t>(link.to)] = 1;
  for (std::size_t by = 0; by < vertices; ++by)
    for (std::size_t a = 0; a < vertices; ++a)
      for (std::size_t b = 0; b < vertices; ++b) far[a][b] = std::min(far[a][b], far[a][by] + far[by][b]);
  return far;
}

TEST(TopologyOfAShape, LeadsEverywhereTheShortestWay) {
  for (const char* text : {"RI(5)", "RI(2)_RI(6)", "FC(4)_SW(3)", "SW(2)_SW(3)_RI(4)", "RI(3)_FC(3)_SW(2)_RI(2)"}) {
    SCOPED_TRACE(text);
    const Topology topology = topology_of(parse_network(text), {});
    EXPECT_EQ(topology.name, text);
    const auto far = distances(topology);
    for (Rank from = 0; from < topology.world; ++from)
      for (Rank to = 0; to < topology.world; ++to) {
        const Path path = topology.path(from, to);
        ASSERT_EQ(path.size(), far[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)]) << from << " " << to;
        Vertex at = from;
        std::int32_t dimension = 0;
        for (const LinkNumber number : path) {
          const Link& link = topology.links[number];
          ASSERT_EQ(link.from, at);
          ASSERT_GE(link.dimension, dimension) << "the innermost first";
          at = link.to;
          dimension = link.dimension;
        }
        ASSERT_EQ(at, to);
      }
  }
}

TEST(TopologyOfAShape, HasTheCablesOfItsDimensions) {
  const Topology topology = topology_of(parse_network("RI(4)_FC(3)_SW(2)"), {});
  EXPECT_EQ(topology.world, 24);
  EXPECT_EQ(topology.switches, 12);
  std::vector<std::size_t> links(3);
  for (const Link& link : topology.links) ++links[static_cast<std::size_t>(link.dimension)];
  EXPECT_THAT(links, ElementsAre(2 * 24, 2 * 24, 2 * 24));
  EXPECT_EQ(topology_of(parse_network("RI(2)"), {}).links.size(), 2U) << "one cable joins both ends";
  EXPECT_THAT(refusal([] { topology_of(parse_network("FC(1024)_SW(1024)"), {}); }),
              HasSubstr("take fewer ranks, or smaller full connections"));
}

// Rank 0 has lost its port: it goes over its neighbour in the ring, and over its switch.
TEST(TopologyOfAShape, GoesAroundLostCables) {
  const Topology whole = topology_of(parse_network("RI(4)_SW(3)"), {});
  const Vertex first_switch = whole.world;  // of ranks 0, 4 and 8
  const Topology left = without_cables(whole, {{0, first_switch}});
  EXPECT_EQ(whole.path(0, 8).size(), 2u);
  for (Rank from = 0; from < whole.world; ++from)
    for (Rank to = 0; to < whole.world; ++to) {
      Vertex at = from;
      for (const LinkNumber link : left.path(from, to)) {
        EXPECT_EQ(left.links[link].from, at);
        at = left.links[link].to;
        EXPECT_FALSE(at == first_switch && left.links[link].from == 0);
      }
      EXPECT_EQ(at, to);
    }
  EXPECT_EQ(left.path(0, 8).size(), 4u);  // to a neighbour, up, down, and to the neighbour of that one
  EXPECT_EQ(without_cables(whole, {{0, 1}}).path(0, 1).size(), 3u);
  EXPECT_EQ(left.path(4, 8).size(), 2u);
  EXPECT_THAT(refusal([] {
                without_cables(topology_of(parse_network("SW(4)"), {}), {{0, 4}}).path(0, 1);
              }),
              HasSubstr("rank 0 has no way to rank 1"));
}

TEST(Utilisation, IsOfWhatADimensionCarriesInTheStep) {
  const StepTime step{.dimensions = 2,
                      .terms = {{.loads = {{1, 60}}}, {.loads = {{2, 30}}}},
                      .cases = {{.constant_ns = 40, .weights = {1, 0}}}};
  // The second term is not there, whatever bandwidth it would have.
  EXPECT_THAT(utilisation(step, std::vector<double>{1, 0}, 100), ElementsAre(0.6, 0));
  // What one dimension carries of a load of both is up to the mix of orders.
  const StepTime mixed{.dimensions = 3,
                       .terms = {{.loads = {{1, 60}, {3, 90}}}, {.loads = {{4, 30}}}},
                       .cases = {{.constant_ns = 10, .weights = {1, 1}}}};
  EXPECT_THAT(utilisation(mixed, std::vector<double>{1, 1, 1}, 100),
              ElementsAre(testing::IsNan(), testing::IsNan(), 0.3));
}

// Equal bandwidth with the best mix of orders is as fast as the best bandwidths with one order, for one all_reduce of
// everybody; and no bandwidths are faster with the mix than all bytes over all bandwidth.
TEST(ChunkOrders, MakeEqualBandwidthAsGoodAsTheBest) {
  const NetworkShape shape = parse_network("RI(4)_FC(8)_RI(4)_SW(32)");
  const Workload workload = make_workload("resnet50");
  const Placement placement = place(workload.degrees, shape);
  DesignProblem fixed{.step = step_time(workload, placement, shape),
                      .dollars_per_gbps = {1, 1, 1, 1},
                      .constraints = parse_constraints("b0+b1+b2+b3=400", 4)};
  const Design best = solve(fixed);
  const StepTime mixed = step_time(workload, placement, shape, {.order = ChunkOrder::mixed});
  const std::vector<double> equal{100, 100, 100, 100};
  EXPECT_NEAR(step_ns(mixed, equal), best.time_ns, 1e-8 * best.time_ns);
  const double computing = fixed.step.cases[0].constant_ns;
  EXPECT_GT(step_ns(fixed.step, equal) - computing, 2.5 * (best.time_ns - computing));
}

}  // namespace
}  // namespace ranvier
