// Steps whose times are known: buckets beside computing, groups of a divided model, and what the end of a step waits
// for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/simple_layers.h"
#include "ranvier/error.h"
#include "ranvier/simulate.h"
#include "ranvier/workload_file.h"

namespace ranvier {
namespace {

std::vector<std::string> names_of(const StepPrediction& step) {
  std::vector<std::string> names;
  for (const std::size_t number : step.critical_path) names.push_back(step.timeline[number].name);
  return names;
}

// Two ranks: an all_reduce of n bytes sends n in each direction, in n ns.
TEST(Step, BucketsTravelWhileBackwardGoesOn) {
  const Workload workload{.layers = {layer(1000, 400), layer(1000, 400)}, .idle_ns = 500};
  const auto step = simulate_step(workload, topology::star(2, one_byte_a_ns), {.bucket_bytes = 1});
  EXPECT_NEAR(step.compute_ns, 4500, 1e-6);
  EXPECT_NEAR(step.communication_ns, 800, 1e-6);
  EXPECT_NEAR(step.step_ns, 4500 + 400, 1e-6);  // the first bucket is hidden, the last is not
  ASSERT_EQ(step.roles.size(), 1u);
  EXPECT_EQ(step.roles[0].role, "data");
  EXPECT_NEAR(step.roles[0].exposed_ns, step.exposed_communication_ns, 1e-6);
  EXPECT_THAT(names_of(step),
              testing::ElementsAre("loading and optimizer", "forward", "backward l", "backward l", "bucket 1"));
}

// While forward and the last layer's backward go on, 300 ns, links save up 300 bytes, if they may; the first bucket of
// 400 has them, the second one has not, and begins when the first has ended or shares the links with what is left of
// it.
TEST(Step, LinksSaveUpOnceWhileTheyRest) {
  const Workload workload{.layers = {layer(100, 400), layer(100, 400)}};
  for (const double burst : {100, 200, 300, 1000}) {
    const LinkSpeed speed{.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(0), .burst_bytes = burst};
    const auto step = simulate_step(workload, topology::star(2, speed), {.bucket_bytes = 1});
    const double saved = std::min(burst, 300.0);
    EXPECT_NEAR(step.step_ns, 300 + 800 - saved, 1e-6) << burst;
    EXPECT_NEAR(step.communication_ns, 800 - saved, 1e-6) << burst;
    ASSERT_EQ(step.dimensions.size(), 1u);
    EXPECT_NEAR(step.dimensions[0].communication_ns, step.communication_ns, 1e-6) << burst;
  }
}

TEST(Step, ASlowNetworkIsTheCriticalPath) {
  const Workload workload{.layers = {layer(10, 4000), layer(10, 4000)}};
  const auto step = simulate_step(workload, topology::star(2, one_byte_a_ns), {.bucket_bytes = 1});
  EXPECT_NEAR(step.step_ns, 30 + 8000, 1e-6);
  // Both travel at the same time, and the last one began behind the backward pass.
  EXPECT_THAT(names_of(step), testing::ElementsAre("forward", "backward l", "backward l", "bucket 1"));
  const auto by_turns = simulate_step(workload, topology::star(2, one_byte_a_ns), {.bucket_bytes = 1, .at_once = 1});
  EXPECT_NEAR(by_turns.step_ns, 30 + 8000, 1e-6);
  EXPECT_THAT(names_of(by_turns), testing::ElementsAre("forward", "backward l", "bucket 0", "bucket 1"));
}

// tp=2, dp=2 on a switch: tensor groups are {0, 1} and {2, 3}, data groups {0, 2} and {1, 3}. Each rank has a link of
// its own, so that groups do not slow each other.
TEST(Step, ATensorGroupIsWaitedFor) {
  Workload workload{.degrees = {.tensor = 2}, .layers = {layer(1000, 400)}};
  workload.layers[0].forward.communications = {{Collective::all_reduce, 800, Role::tensor}};
  workload.layers[0].input_gradient.communications = {{Collective::all_gather, 200, Role::tensor}};
  for (const bool fold : {true, false}) {
    const auto step = simulate_step(workload, topology::star(4, one_byte_a_ns), {.options = {.fold = fold}});
    EXPECT_NEAR(step.step_ns, 2000 + 800 + 200 + 400, 1e-6) << fold;
    ASSERT_EQ(step.roles.size(), 2u);
    EXPECT_EQ(step.roles[0].role, "tensor");
    EXPECT_NEAR(step.roles[0].exposed_ns, 1000, 1e-6);
  }
}

// Of four ranks with links of their own: a ring sends 2 x 3/4 of a vector, one_round the whole of it to three others.
TEST(Step, EveryRoleSumsByTheAlgorithm) {
  Workload workload{.degrees = {.tensor = 4}, .layers = {layer(0, 1600)}};
  workload.layers[0].forward.communications = {{Collective::all_reduce, 800, Role::tensor}};
  const auto takes = [&](const StepSimulation& how) {
    const auto step = simulate_step(workload, topology::star(16, one_byte_a_ns), how);
    EXPECT_EQ(step.roles.size(), 2u);
    return std::pair(step.roles[0].communication_ns, step.roles[1].communication_ns);  // tensor, data
  };
  const auto near = [](double tensor_ns, double data_ns) {
    return testing::Pair(testing::DoubleNear(tensor_ns, 1e-6), testing::DoubleNear(data_ns, 1e-6));
  };
  EXPECT_THAT(takes({}), near(1200, 2400));
  EXPECT_THAT(takes({.algorithm = "one_round"}), near(2400, 4800));
  const std::vector<FastestAlgorithm> table{{.up_to = 900, .algorithm = "one_round"}};
  EXPECT_THAT(takes({.by_size = table}), near(2400, 2400));
  // Codes go to the owners of parts, 1/4 of a vector to each of three, and back; activations are not coded.
  EXPECT_THAT(takes({.algorithm = "one_round", .averages_by_owners = true}), near(2400, 2400));
  EXPECT_THAT(takes({.algorithm = std::string(in_network)}), near(800, 1600));
}

// A grid is one of the data groups' ranks; tensor groups that it is too large for take one of their own.
TEST(Step, AGridThatIsNamedIsThatOfDataGroups) {
  Workload workload{.degrees = {.tensor = 4}, .layers = {layer(0, 8000)}};
  workload.layers[0].forward.communications = {{Collective::all_reduce, 8000, Role::tensor}};
  const auto step = [&](const std::string& algorithm) {
    return simulate_step(workload, topology::star(32, {}), {.algorithm = algorithm});
  };
  EXPECT_EQ(step("torus:4x2").roles[0].communication_ns, step("torus").roles[0].communication_ns);
  EXPECT_NE(step("torus:4x2").roles[0].communication_ns, step("ring").roles[0].communication_ns);
  EXPECT_THROW(step("torus:2x2"), Error);  // nobody's but the tensor groups'
  EXPECT_THROW(step("torus:3x3"), Error);
}

// On a ring of eight with tensor groups of two, each rank's next one in its data group stands two links away: each link
// carries what two groups send.
TEST(Step, GroupsOfARoleShareLinks) {
  const Workload divided{.degrees = {.tensor = 2}, .layers = {layer(0, 400)}};
  const auto step = simulate_step(divided, topology::ring(8, one_byte_a_ns));
  EXPECT_NEAR(step.step_ns, 2 * (2 * 3 / 4.0 * 400), 1e-6);
}

TEST(Step, ExpertsAndPipelinesHaveGroupsOfTheirOwn) {
  Workload workload{.degrees = {.expert = 2, .pipeline = 2}, .layers = {layer(0, 0)}};
  workload.layers[0].forward.communications = {{Collective::all_to_all, 1000, Role::expert},
                                               {Collective::send, 300, Role::pipeline}};
  workload.layers[0].weight_gradient.communications = {{Collective::all_reduce, 504, Role::expert_data}};
  const auto step = simulate_step(workload, topology::star(8, one_byte_a_ns));
  // Half of an all_to_all of two stays; each stage sends its whole boundary.
  EXPECT_NEAR(step.step_ns, 500 + 300 + 504, 1e-6);
}

TEST(Step, LargeDividedModelsAreFolded) {
  const auto step = simulate_step(make_workload("llama3-70b:tp=8,pp=4"), topology::star(4096, {}));
  EXPECT_GT(step.step_ns, step.compute_ns);
  EXPECT_EQ(step.roles.size(), 3u);
  EXPECT_THROW(simulate_step(make_workload("llama3-70b:tp=8,pp=4"), topology::star(100, {})), Error);
}

TEST(Step, ABucketYieldsItsLinksToWhatIsWaitedFor) {
  Workload workload{.degrees = {.tensor = 2}, .layers = {layer(0, 400), layer(100, 0), layer(300, 400)}};
  workload.layers[1].input_gradient.communications = {{Collective::all_gather, 200, Role::tensor}};
  for (const bool fold : {true, false}) {
    const auto step =
        simulate_step(workload, topology::star(4, one_byte_a_ns), {.bucket_bytes = 1, .options = {.fold = fold}});
    // Forward 400, backward 300, then bucket 0, which stands still while the tensor group has the links from 800 to
    // 1000.
    ASSERT_EQ(step.roles.size(), 2u);
    EXPECT_NEAR(step.step_ns, 700 + 400 + 200 + 400, 1e-6) << fold;
    EXPECT_NEAR(step.communication_ns, 400 + 200 + 400, 1e-6) << fold;
    for (const auto& link : step.links) EXPECT_LE(link.utilisation, 1 + 1e-9) << fold;
  }
}

// Whatever travels at the same time, no link carries more than its rate, also of those that save up.
TEST(Step, OfNoReadyMadeWorkloadBeatsTheWire) {
  for (const std::string_view name : workload_names())
    for (const double gbit : {1, 10, 400}) {
      Workload workload = make_workload(name);
      workload.layers.resize(std::min<std::size_t>(workload.layers.size(), 40));  // of all the same kinds
      const LinkSpeed speed{.bytes_per_second = gbit * 1e9 / 8, .burst_bytes = gbit == 10 ? 1e6 : 0};
      const auto step = simulate_step(workload, topology::star(256, speed));
      for (const auto& link : step.links)
        EXPECT_LE(link.utilisation, 1 + 1e-9) << name << " at " << gbit << " Gbit/s, " << link.from << "-" << link.to;
    }
}

// Each vector goes up to the top of the tree once and comes down once, however many ranks there are.
TEST(Step, SwitchesThatAddUpCarryEachVectorOnce) {
  constexpr LinkSpeed slow{.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(10)};
  const StepSimulation how{.algorithm = std::string(in_network)};
  const Workload workload{.layers = {layer(0, 4000)}};
  for (const Rank world : {2, 8, 64})
    EXPECT_NEAR(simulate_step(workload, topology::star(world, slow), how).step_ns, 4000 + 2 * 10, 1e-6) << world;
  EXPECT_NEAR(simulate_step(workload, topology::fat_tree(8, 2, 2, slow), how).step_ns, 4000 + 2 * 3 * 10, 1e-6);
  // Two groups of four, 0, 2, 4, 6 and 1, 3, 5, 7: each leaf has a member of both, whose sums share its one cable up.
  const Workload divided{.degrees = {.tensor = 2}, .layers = {layer(0, 4000)}};
  EXPECT_NEAR(simulate_step(divided, topology::fat_tree(8, 2, 2, slow), how).step_ns, 8000 + 2 * 3 * 10, 1e-6);
  EXPECT_THROW(simulate_step(workload, topology::ring(8, slow), how), Error);
}

TEST(Step, AStragglerHoldsUpWhatSwitchesAddUp) {
  const StepSimulation how{.algorithm = std::string(in_network), .options = {.slowdown = {1, 1, 2, 1}}};
  const Workload workload{.layers = {layer(0, 4000)}};
  EXPECT_NEAR(simulate_step(workload, topology::star(4, one_byte_a_ns), how).step_ns, 8000, 1e-6);
}

// On 2 x 2 ranks whose last dimension is counted fastest, tensor groups {0, 1} and {2, 3} talk along dimension 1, and
// data groups along dimension 0.
TEST(Step, EachDimensionHasWhatGoesOverIt) {
  Workload workload{.degrees = {.tensor = 2}, .layers = {layer(1000, 400), layer(1000, 600)}};
  workload.layers[0].forward.communications = {{Collective::all_reduce, 800, Role::tensor}};
  for (const bool fold : {true, false}) {
    const auto step = simulate_step(workload, topology::torus({2, 2}, one_byte_a_ns),
                                    {.bucket_bytes = 1, .codec_ns_per_byte = 0.5, .options = {.fold = fold}});
    EXPECT_NEAR(step.step_ns, 4000 + 800 + 600, 1e-6) << fold;  // the last bucket: 400 sent, 200 encoding
    ASSERT_EQ(step.dimensions.size(), 2u);
    EXPECT_NEAR(step.dimensions[0].communication_ns, 600 + 400, 1e-6) << fold;
    EXPECT_NEAR(step.dimensions[0].exposed_ns, 400, 1e-6) << fold;
    EXPECT_NEAR(step.dimensions[1].communication_ns, 800, 1e-6) << fold;
    EXPECT_NEAR(step.dimensions[1].exposed_ns, 800, 1e-6) << fold;
    EXPECT_NEAR(step.codec_ns, 500, 1e-6) << fold;
    EXPECT_NEAR(step.exposed_codec_ns, 200, 1e-6) << fold;
    for (const auto& link : step.links) {
      EXPECT_NEAR(link.exposed_ns, link.dimension == 0 ? 400 : 800, 1e-6) << link.from << " -> " << link.to;
      EXPECT_NEAR(link.hidden_ns, link.dimension == 0 ? 600 : 0, 1e-6) << link.from << " -> " << link.to;
      EXPECT_NEAR(link.utilisation, (link.exposed_ns + link.hidden_ns) / step.step_ns, 1e-9);
    }
  }
}

// Pairs first: each rank sends and gets back half of the vector along dimension 1, and a quarter along dimension 0.
TEST(Step, ACollectiveIsSplitAmongTheDimensionsThatItPasses) {
  const Workload workload{.layers = {layer(1000, 400)}};
  const auto step = simulate_step(workload, topology::torus({2, 2}, one_byte_a_ns), {.algorithm = "hierarchical:2"});
  EXPECT_NEAR(step.exposed_communication_ns, 600, 1e-6);
  ASSERT_EQ(step.dimensions.size(), 2u);
  EXPECT_NEAR(step.dimensions[0].exposed_ns, 200, 1e-6);
  EXPECT_NEAR(step.dimensions[1].exposed_ns, 400, 1e-6);
}

// A bucket that gave way is exposed only with what is left of it behind the end of computing.
TEST(Step, DimensionsAddUpToTheCommunication) {
  const auto step = simulate_step(make_workload("llama3-8b:tp=4,pp=2"),
                                  topology::torus({4, 4, 4}, {.bytes_per_second = 5e9}), {.codec_ns_per_byte = 0.01});
  double all = step.codec_ns;
  double exposed = step.exposed_codec_ns;
  for (const auto& each : step.dimensions) {
    all += each.communication_ns;
    exposed += each.exposed_ns;
  }
  EXPECT_NEAR(all / step.communication_ns, 1, 1e-9);
  EXPECT_NEAR(exposed / step.exposed_communication_ns, 1, 1e-9);
}

TEST(Step, FollowsATableOfSizes) {
  const Workload workload{.layers = {layer(0, 4000)}};
  const Topology star = topology::star(4, one_byte_a_ns);
  const auto by_ring = simulate_step(workload, star, {.algorithm = "ring"});
  const auto by_tree = simulate_step(workload, star, {.algorithm = "binomial_tree"});
  ASSERT_LT(by_ring.step_ns, by_tree.step_ns);
  const StepSimulation small_ones{.algorithm = "ring", .by_size = {{.up_to = 3999, .algorithm = "binomial_tree"}}};
  const StepSimulation all{.algorithm = "ring", .by_size = {{.up_to = 4000, .algorithm = "binomial_tree"}}};
  EXPECT_EQ(simulate_step(workload, star, small_ones).step_ns, by_ring.step_ns);
  EXPECT_EQ(simulate_step(workload, star, all).step_ns, by_tree.step_ns);
}

}  // namespace
}  // namespace ranvier
