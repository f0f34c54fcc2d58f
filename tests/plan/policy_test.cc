// Steps by a policy, which the policy itself is asked for: who waits for whom, and what that takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/simple_layers.h"
#include "ranvier/error.h"
#include "ranvier/simulate.h"
#include "ranvier/workload_file.h"

namespace ranvier {
namespace {

PolicyPrediction by_policy(const Workload& workload, const Topology& topology, const char* spec,
                           const PolicySimulation& simulation, const StepSimulation& how = {}) {
  const auto policy = make_sync_policy(
      spec, {.steps_per_epoch = 0, .steps = simulation.steps, .world = static_cast<std::uint64_t>(topology.world)});
  return simulate_policy(*policy, workload, topology, how, simulation);
}

PolicyPrediction by_policy(const Workload& workload, Rank world, const char* spec, std::uint64_t steps,
                           const UnequalWorkers& unequal = {}) {
  return by_policy(workload, topology::star(world, one_byte_a_ns), spec, {.steps = steps, .unequal = unequal});
}

double policy_step_ns(const Workload& workload, Rank world, const char* spec) {
  return by_policy(workload, world, spec, 10'000).step_ns;
}

// Averages of gradients are what a policy does without, whoever holds replicas of what they are of; the rest of a
// forward pass is not.
TEST(Policy, LeavesOutAveragesOfGradientsAndNothingElse) {
  for (const Role role : {Role::data, Role::expert_data, Role::weight_gradient}) {
    Workload workload{.layers = {layer(10, 0)}};
    workload.layers[0].weight_gradient.communications = {{Collective::all_reduce, 10'000, role}};
    EXPECT_NEAR(policy_step_ns(workload, 2, "local:100"), 20 + 10'000 / 100.0, 1) << name_of(role);
  }
  // As DLRM exchanges the rows of its tables.
  Workload rows{.layers = {layer(10, 0)}};
  rows.layers[0].forward.communications = {{Collective::all_to_all, 10'000, Role::data}};
  EXPECT_NEAR(policy_step_ns(rows, 2, "local:100"), 20 + 5'000, 1);
}

TEST(Policy, AWorkerIsSlowAtItsPassesAndNotAtLoading) {
  Workload workload{.layers = {layer(1000, 400)}};
  const UnequalWorkers half{.speeds = {1, 0.5}};
  const double before = by_policy(workload, 2, "bsp", 10, half).step_ns;
  workload.idle_ns = 500;
  EXPECT_NEAR(by_policy(workload, 2, "bsp", 10, half).step_ns, before + 500, 1e-6);
}

// Computing of 30 a step, and averages of 100: how often replicas meet is how often they wait for the slowest.
TEST(Policy, WaitsForTheSlowestWhereReplicasMeet) {
  Workload workload{.layers = {layer(10, 0)}};
  workload.layers[0].weight_gradient.communications = {{Collective::all_reduce, 100, Role::data}};
  const StepPrediction step = simulate_step(workload, topology::star(3, one_byte_a_ns));
  const double computing = step.compute_ns, averaging = step.step_ns - computing;
  ASSERT_GT(averaging, 0);

  // One of them takes twice as long, in each step or by turns with another one.
  const UnequalWorkers half{.speeds = {1, 0.5}};
  EXPECT_NEAR(by_policy(workload, 3, "bsp", 8, half).step_ns, 2 * computing + averaging, 1e-6);
  EXPECT_NEAR(by_policy(workload, 3, "bsp", 8, half).exposed_communication_ns, averaging, 1e-6);
  const UnequalWorkers turns{.stragglers = {{0, 0, 1, 2}, {1, 1, 2, 2}, {0, 2, 3, 2}, {1, 3, 4, 2}}};
  EXPECT_NEAR(by_policy(workload, 3, "bsp", 4, turns).step_ns, 2 * computing + averaging, 1e-6);
  EXPECT_NEAR(by_policy(workload, 3, "bsp", 4, turns).exposed_communication_ns, computing / 2 + averaging, 1e-6);
  EXPECT_NEAR(by_policy(workload, 3, "local:2", 4, turns).step_ns, (6 * computing + 2 * averaging) / 4, 1e-6);
  EXPECT_NEAR(by_policy(workload, 3, "local:4", 4, turns).step_ns, (6 * computing + averaging) / 4, 1e-6);
}

// By the draws themselves, which are those of training.
TEST(Policy, IsLateInTheStepsInWhichTrainingIs) {
  Workload workload{.layers = {layer(10, 0)}};
  workload.layers[0].weight_gradient.communications = {{Collective::all_reduce, 100, Role::data}};
  const StepPrediction step = simulate_step(workload, topology::star(4, one_byte_a_ns));
  const double computing = step.compute_ns, averaging = step.step_ns - computing;
  const UnequalWorkers unequal{.speeds = {1, 0.8}, .jitter_share = 0.2, .jitter_factor = 3};
  constexpr std::uint64_t steps = 96, period = 8;
  std::vector<Slowness> workers;
  for (std::uint64_t worker = 0; worker < 4; ++worker) workers.emplace_back(unequal, worker, 0);
  double in_step = 0, in_periods = 0;
  std::vector<double> since(4, 0);
  for (std::uint64_t number = 0; number < steps; ++number) {
    double slowest = 0;
    for (std::size_t worker = 0; worker < 4; ++worker) {
      const double times = workers[worker].of(number);
      slowest = std::max(slowest, times);
      since[worker] += times;
    }
    in_step += slowest;
    if ((number + 1) % period > 0) continue;
    in_periods += std::ranges::max(since);
    std::ranges::fill(since, 0);
  }
  EXPECT_NEAR(by_policy(workload, 4, "bsp", steps, unequal).step_ns, in_step / steps * computing + averaging, 1e-6);
  EXPECT_NEAR(by_policy(workload, 4, "local:8", steps, unequal).step_ns,
              in_periods / steps * computing + averaging / period, 1e-6);
  EXPECT_LT(in_periods, in_step);
}

TEST(Policy, RefusesWorkersThatAreNotThere) {
  const Workload workload{.degrees = {.tensor = 2}, .layers = {layer(10, 0)}};
  EXPECT_NO_THROW(by_policy(workload, 4, "bsp", 1, {.speeds = {1, 0.5}}));
  EXPECT_THROW(by_policy(workload, 4, "bsp", 1, {.speeds = {1, 1, 0.5}}), Error);
  EXPECT_THROW(by_policy(workload, 4, "bsp", 1, {.stragglers = {{2, 0, 1, 2}}}), Error);
  EXPECT_THROW(check_replicas(workload, 1 << 14, {.jitter_share = 0.5, .jitter_factor = 2}), Error);
}

// ---- Levels.

// Level 0 each alone, nodes of so many consecutive replicas, everybody.
std::vector<std::vector<int>> nodes(int world, int size) {
  std::vector<std::vector<int>> levels(3);
  for (int replica = 0; replica < world; ++replica) {
    levels[0].push_back(replica);
    levels[1].push_back(replica / size);
    levels[2].push_back(0);
  }
  return levels;
}

TEST(Levels, OneNodeIsBsp) {
  const Workload workload{.layers = {layer(10, 4000), layer(10, 4000)}};
  const Topology star = topology::star(4, one_byte_a_ns);
  const double bsp = by_policy(workload, star, "bsp", {.steps = 64}).step_ns;
  EXPECT_NEAR(by_policy(workload, star, "node:8", {.steps = 64, .levels = nodes(4, 4)}).step_ns, bsp, 1e-6);
}

TEST(Levels, NodesOfOneAreLocal) {
  const Workload workload{.layers = {layer(10, 4000), layer(10, 4000)}};
  const Topology star = topology::star(4, one_byte_a_ns);
  const double local = by_policy(workload, star, "local:8", {.steps = 64}).step_ns;
  EXPECT_NEAR(by_policy(workload, star, "node:8", {.steps = 64, .levels = nodes(4, 1)}).step_ns, local, 1e-6);
}

// An all_reduce between two ranks sends every byte once each way, and so does a broadcast to one.
TEST(Levels, LeadersAverageAndTellTheirNodes) {
  const Workload workload{.layers = {layer(10, 4000)}};
  const Topology star = topology::star(4, one_byte_a_ns);
  const auto found = by_policy(workload, star, "node:8", {.steps = 64, .levels = nodes(4, 2)});
  EXPECT_NEAR(found.step_ns, 20 + 4000 + (4000 + 4000) / 8.0, 1);
  EXPECT_TRUE(found.averages_gradients);
  EXPECT_NEAR(found.usual.step_ns, 20 + 4000, 1e-6);
  EXPECT_NEAR(found.rounds_per_step, 1 + 1 / 8.0, 1e-9);
  // Nodes of different sizes: three average 4/3 of the bytes.
  auto uneven = nodes(5, 2);
  uneven[1] = {0, 0, 0, 1, 1};
  EXPECT_NEAR(by_policy(workload, topology::star(5, one_byte_a_ns), "node:64", {.steps = 63, .levels = uneven}).step_ns,
              20 + 4000 * 4 / 3.0, 15);  // in whole values
}

// Between nodes goes what leaders average, over the line of each node, and nothing else.
TEST(Levels, NodesAverageOverTheirOwnLinks) {
  const Workload workload{.layers = {layer(10, 4000)}};
  Topology tree = topology::fat_tree(4, 2, 2, one_byte_a_ns);
  for (Link& link : tree.links)
    if (link.dimension > 0) link.speed.bytes_per_second /= 100;
  const double period = 10;
  const auto found = by_policy(workload, tree, "node:10", {.steps = 60, .levels = nodes(4, 2)});
  EXPECT_NEAR(found.step_ns, 20 + 4000 + (100 * 4000 + 4000) / period, 10);
  EXPECT_GT(by_policy(workload, tree, "bsp", {.steps = 60}).step_ns, 100 * 4000);
}

TEST(Levels, ANodeWaitsForItsOwnSlowest) {
  const Workload workload{.layers = {layer(1000, 4)}};
  const Topology star = topology::star(4, one_byte_a_ns);
  const double step = 2000;
  // By turns one of each node takes twice as long: nodes wait in every step, and for one another at their average.
  const UnequalWorkers turns{.stragglers = {{0, 0, 1, 2}, {1, 1, 2, 2}, {2, 0, 2, 2}}};
  const auto levels = nodes(4, 2);
  const auto by_node = [&](const UnequalWorkers& unequal) {
    return by_policy(workload, star, "node:2", {.steps = 2, .unequal = unequal, .levels = levels}).step_ns;
  };
  EXPECT_NEAR(by_node(turns), 2 * step, 20);
  const UnequalWorkers apart{.stragglers = {{0, 0, 1, 2}, {2, 1, 2, 2}}};
  EXPECT_NEAR(by_node(apart), 1.5 * step, 20);
  EXPECT_NEAR(by_policy(workload, star, "bsp", {.steps = 2, .unequal = apart}).step_ns, 2 * step, 30);
}

TEST(Levels, OfADividedModelEachPartIsAveragedByItself) {
  Workload workload{.degrees = {.tensor = 2}, .layers = {layer(10, 4000)}};
  const Topology star = topology::star(8, one_byte_a_ns);
  // Four replicas in two nodes; the two parts of each have links of their own.
  const auto found = by_policy(workload, star, "node:8", {.steps = 64, .levels = nodes(4, 2)});
  EXPECT_NEAR(found.step_ns, 20 + 4000 + (4000 + 4000) / 8.0, 1);
  EXPECT_THROW(by_policy(workload, star, "node:8", {.steps = 64, .levels = nodes(8, 2)}), Error);
}

TEST(Levels, OnlyEverybodysAveragesAreCompressed) {
  const Workload workload{.layers = {layer(10, 4000)}};
  const Topology star = topology::star(4, one_byte_a_ns);
  const StepSimulation halves{.gradient_scale = 0.5};
  const auto found =
      by_policy(workload, star, "node:8", {.steps = 64, .levels = nodes(4, 2), .inside = StepSimulation{}}, halves);
  EXPECT_NEAR(found.step_ns, 20 + 4000 + (2000 + 4000) / 8.0, 1);
  // Also where parameters are what nodes average, in every other step.
  const auto of_nodes = by_policy(workload, star, "hierarchy:node=2,world=64",
                                  {.steps = 64, .levels = nodes(4, 2), .inside = StepSimulation{}}, halves);
  EXPECT_NEAR(of_nodes.step_ns, 20 + (32 * 4000 + (2000 + 4000)) / 64.0, 1);
}

TEST(Levels, ThatNobodyPlacedAreRefused) {
  const Workload workload{.layers = {layer(10, 4000)}};
  try {
    by_policy(workload, topology::star(4, one_byte_a_ns), "node:8", {.steps = 1});
    FAIL() << "nobody placed its nodes";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--place node=2"));
  }
}

// ---- When replicas average.

// What comes after a step hides behind none of it; where nothing could have been hidden it is the same.
TEST(Policy, LocalOfOneStepIsBsp) {
  const Workload workload{.layers = {layer(10, 4000)}};
  EXPECT_NEAR(policy_step_ns(workload, 4, "local:1"), policy_step_ns(workload, 4, "bsp"), 1e-6);
}

TEST(Policy, PostLocalIsBspAndThenLocal) {
  const Workload workload{.layers = {layer(10, 4000)}};
  const auto step_ns = [&](const char* spec) { return by_policy(workload, 4, spec, 640).step_ns; };
  EXPECT_NEAR(step_ns("post-local:16,after=0.25"), (step_ns("bsp") + 3 * step_ns("local:16")) / 4, 1e-6);
  EXPECT_TRUE(by_policy(workload, 4, "post-local:16,after=0.75", 640).averages_gradients);
  EXPECT_FALSE(by_policy(workload, 4, "post-local:16,after=0.25", 640).averages_gradients);
}

// The period doubles while the spread that is assumed is below the bound, and halves above four times it.
TEST(Policy, AdaptsToTheSpreadThatIsAssumed) {
  const Workload workload{.layers = {layer(10, 4000)}};
  const Topology star = topology::star(4, one_byte_a_ns);
  const auto rounds = [&](double spread) {
    const auto found = by_policy(workload, star, "local:4,adapt=0.5,most=16", {.steps = 4096, .spread = spread});
    return found.rounds_per_step * 4096;
  };
  EXPECT_NEAR(rounds(1), 4096 / 4, 1e-6);
  EXPECT_NEAR(rounds(0.1), 2 + (4096 - 4 - 8) / 16, 1e-6);  // the first two periods are of 4 and 8
  EXPECT_NEAR(rounds(9), 2 + 4096 - 4 - 2, 1e-6);
  EXPECT_THROW(by_policy(workload, star, "local:4,adapt=0.5,most=16", {.steps = 64}), Error);
}

// Half of what each replica holds goes one, two, four ranks further; who sends it is waited for, nobody else.
TEST(Policy, GossipWaitsForOnePeer) {
  const Workload workload{.layers = {layer(1000, 4000)}};
  const Topology star = topology::star(8, one_byte_a_ns);
  EXPECT_NEAR(by_policy(workload, star, "gossip", {.steps = 30}).step_ns, 2000 + 4000, 1e-6);
  const UnequalWorkers once{.stragglers = {{0, 0, 1, 3}}};
  const auto steps = [&](std::uint64_t count) {
    return by_policy(workload, star, "gossip", {.steps = count, .unequal = once}).step_ns * static_cast<double>(count);
  };
  EXPECT_NEAR(steps(1), 6000 + 4000, 1e-6);
  EXPECT_NEAR(steps(4), 4 * 6000 + 4000, 1e-6) << "what was late once is late, and no later";
  // Two that are late in turn, so far apart that one has not heard of the other.
  const UnequalWorkers two{.stragglers = {{0, 0, 1, 3}, {4, 1, 2, 3}}};
  EXPECT_NEAR(by_policy(workload, star, "gossip", {.steps = 2, .unequal = two}).step_ns, (2 * 6000 + 4000) / 2.0, 1e-6);
  EXPECT_NEAR(by_policy(workload, star, "bsp", {.steps = 2, .unequal = two}).step_ns, 6000 + 7000, 1e-6);
}

TEST(Policy, GossipSendsCodesAndTakesTheirTime) {
  const Workload workload{.layers = {layer(1000, 4000)}};
  const StepSimulation halves{.gradient_scale = 0.5, .codec_ns_per_byte = 0.25};
  const auto found = by_policy(workload, topology::star(8, one_byte_a_ns), "gossip", {.steps = 30}, halves);
  EXPECT_NEAR(found.step_ns, 2000 + 2000 + 500, 1e-6);
}

// Four replicas of two parts: a hop of four ends where it began, and no further one leaves the group.
TEST(Policy, GossipOfADividedModelStaysAmongItsReplicas) {
  const Workload divided{.degrees = {.tensor = 2}, .layers = {layer(1000, 4000)}};
  const auto found = by_policy(divided, topology::star(8, one_byte_a_ns), "gossip", {.steps = 30});
  EXPECT_LE(found.step_ns, 2000 + 4000 + 1e-6);
  EXPECT_GE(found.step_ns, 2000);
}

TEST(Policy, DrawsLateStepsByItsSeed) {
  const Workload workload{.layers = {layer(1000, 4)}};
  const Topology star = topology::star(4, one_byte_a_ns);
  const auto step_ns = [&](const char* spec, std::uint64_t seed) {
    return by_policy(workload, star, spec,
                     {.steps = 50, .unequal = {.jitter_share = 0.1, .jitter_factor = 3}, .seed = seed})
        .step_ns;
  };
  for (const char* spec : {"bsp", "async"}) {
    EXPECT_EQ(step_ns(spec, 7), step_ns(spec, 7));
    EXPECT_NE(step_ns(spec, 7), step_ns(spec, 8));
  }
}

// ---- Peers, of which one with an odd number, and the last of an odd number of ranks, asks another one.

// Computing of 2000, parameters of 1000 bytes.
const Workload averaging{.layers = {layer(1000, 1000)}};

TEST(Peers, WhoAsksWaitsForWhatComesBackAndWhoIsAskedDoesNot) {
  // There and back in what computing takes.
  const auto hidden = by_policy(averaging, topology::star(2, one_byte_a_ns), "ad-psgd", {.steps = 100});
  EXPECT_NEAR(hidden.step_ns, 2000, 1e-6);
  EXPECT_NEAR(hidden.exposed_communication_ns, 0, 1e-6);
  EXPECT_EQ(hidden.rounds_per_step, 1);
  EXPECT_EQ(hidden.peers.value().busiest, 0);
  EXPECT_NEAR(hidden.peers.value().busy, 1, 1e-9);
  // On links of a quarter of that one worker's steps take 2 x 4000, and the other's 2000 as before.
  const Topology slow = topology::star(2, {.bytes_per_second = 0.25e9, .latency = std::chrono::nanoseconds(0)});
  const auto found = by_policy(averaging, slow, "ad-psgd", {.steps = 500});
  EXPECT_NEAR(found.step_ns, 2 / (1.0 / 2000 + 1.0 / 8000), 20);
  EXPECT_NEAR(found.peers.value().fastest_share, 0.8, 0.01);
  EXPECT_NEAR(found.peers.value().waits_ns, 0.2 * 6000, 20);
  EXPECT_NEAR(found.rounds_per_step, 2 * 0.2, 0.01);
}

// Who is asked by several takes them in turn; its links are the only slow ones.
TEST(Peers, WhoIsAskedTakesOneAtATime) {
  Topology star = topology::star(8, {.bytes_per_second = 1e15, .latency = std::chrono::nanoseconds(0)});
  for (Link& link : star.links)
    if (std::min(link.from, link.to) % 2 == 0) link.speed.bytes_per_second = 1e9;
  const auto found = by_policy(averaging, star, "ad-psgd", {.steps = 500});
  // A mean takes 2000 of whom it asks. As random as peers are, some are asked by two while others idle.
  EXPECT_GT(found.peers.value().waits_ns, 100);
  EXPECT_LT(found.peers.value().busy, 1);
  EXPECT_GT(found.step_ns, 2000);
  EXPECT_LT(found.step_ns, 2 * 2000);
  for (const auto& link : found.peers.value().links) EXPECT_LE(link.utilisation, 1 + 1e-9);
}

TEST(Peers, NobodyWaitsForASlowWorker) {
  const Topology star = topology::star(5, {.bytes_per_second = 1e15, .latency = std::chrono::nanoseconds(0)});
  const UnequalWorkers slow{.speeds = {1, 1, 0.25, 1, 1}};
  const auto found = by_policy(averaging, star, "ad-psgd", {.steps = 200, .unequal = slow});
  EXPECT_NEAR(found.step_ns, 2000 * 5 / 4.25, 30);
  EXPECT_EQ(by_policy(averaging, topology::star(1, one_byte_a_ns), "ad-psgd", {.steps = 10}).step_ns, 2000);
}

TEST(Peers, AreThoseOfTheSeed) {
  const auto run = [](std::uint64_t seed) {
    return by_policy(averaging, topology::star(8, one_byte_a_ns), "ad-psgd", {.steps = 50, .seed = seed}).step_ns;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

// ---- Parameter servers.

// Computing of 2000, gradients of 1000 bytes; servers on a rank of their own.
const Workload pushing{.layers = {layer(1000, 1000)}};

TEST(Servers, OneWorkerComputesPushesAndPulls) {
  const auto found = by_policy(pushing, topology::star(2, one_byte_a_ns), "async:servers=1", {.steps = 10});
  EXPECT_NEAR(found.step_ns, 2000 + 2 * 1000, 1e-6);
  EXPECT_NEAR(found.exposed_communication_ns, 2000, 1e-6);
  EXPECT_EQ(found.rounds_per_step, 1);
  EXPECT_EQ(found.servers.value().overtaken, 0);
  // Both ranks compute and own a half each: halves go each way at once.
  const auto both = by_policy(pushing, topology::star(2, one_byte_a_ns), "async", {.steps = 100});
  EXPECT_NEAR(both.step_ns, 2000 + 2 * 500, 1);
  EXPECT_EQ(both.rounds_per_step, 2);
}

TEST(Servers, ACodecShortensWhatIsPushedAndAnsweredAndTakesItsTime) {
  const StepSimulation codec{.gradient_scale = 0.25, .codec_ns_per_byte = 0.4};
  const auto found = by_policy(pushing, topology::star(2, one_byte_a_ns), "async:servers=1", {.steps = 10}, codec);
  EXPECT_NEAR(found.step_ns, 2000 + 2 * 250 + 0.4 * 250, 1e-6);
}

// The last ranks serve and have a tenth of the others' bandwidth.
Topology slow_servers(Rank workers, Rank servers) {
  Topology star = topology::star(workers + servers, one_byte_a_ns);
  const auto serves = [&](Vertex end) { return end >= workers && end < star.world; };
  for (Link& link : star.links)
    if (serves(link.from) || serves(link.to)) link.speed.bytes_per_second /= 10;
  return star;
}

// A server receives a push and sends the answer, one after the other, and then looks at the next one.
TEST(Servers, AreTheBottleneckOfManyWorkers) {
  constexpr Rank workers = 8;
  const auto run = [&](Rank servers, const char* spec) {
    return by_policy(pushing, slow_servers(workers, servers), spec, {.steps = 100});
  };
  const auto one = run(1, "async:servers=1");
  EXPECT_GE(one.step_ns, workers * 2 * 10'000);
  EXPECT_LE(one.step_ns, workers * 2 * 10'000 * 1.01);
  EXPECT_EQ(one.servers.value().busiest, workers);
  EXPECT_GT(one.servers.value().busy, 0.99);
  for (const auto& link : one.servers.value().links) EXPECT_LE(link.utilisation, 0.5 + 1e-9) << link.from;
  EXPECT_NEAR(run(2, "async:servers=2").step_ns / one.step_ns, 0.5, 0.01);
  // Of three ranges one of the two owns two.
  EXPECT_NEAR(run(2, "async:servers=2,ranges=3").step_ns / one.step_ns, 2 / 3.0, 0.01);
}

TEST(Servers, NobodyWaitsForASlowWorkerButByTheBound) {
  const UnequalWorkers slow{.speeds = {1, 1, 1, 0.25}};
  const Topology star = topology::star(4, {.bytes_per_second = 1e15, .latency = std::chrono::nanoseconds(0)});
  const auto run = [&](const char* spec) { return by_policy(pushing, star, spec, {.steps = 200, .unequal = slow}); };
  // Four workers' samples at the rate of three and a quarter.
  EXPECT_NEAR(run("async").step_ns, 2000 * 4 / 3.25, 30);
  EXPECT_GT(run("async").servers.value().most_ahead, 100u);
  // Who may not run away does as many steps as the slow one.
  EXPECT_NEAR(run("ssp:3").step_ns, 4 * 2000, 200);
  EXPECT_NEAR(run("bsp").step_ns, 4 * 2000, 1);
}

TEST(Servers, NoWorkerIsEverFurtherAheadThanTheBound) {
  const UnequalWorkers unequal{.speeds = {1, 0.9, 0.5, 0.3}, .jitter_share = 0.2, .jitter_factor = 4};
  const Topology star = topology::star(5, {.bytes_per_second = 1e9});
  for (const std::uint64_t bound : {0u, 1u, 3u, 10u})
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const std::string spec = "ssp:" + std::to_string(bound);
      const auto found = by_policy(pushing, star, spec.c_str(), {.steps = 100, .unequal = unequal, .seed = seed});
      EXPECT_LE(found.servers.value().most_ahead, bound) << seed;
      EXPECT_EQ(found.servers.value().most_ahead, bound) << seed << ": fast ones run as far as they may";
    }
}

TEST(Servers, PushesOfAllOthersOvertakeInTurn) {
  const auto found = by_policy(pushing, topology::star(4, one_byte_a_ns), "async", {.steps = 500});
  EXPECT_NEAR(found.servers.value().overtaken, 3, 0.05);
}

// Two fast ones and two slow ones: two groups, each of which pushes once where single workers would twice.
TEST(Servers, GroupsBySpeedPushOnce) {
  const UnequalWorkers two_kinds{.speeds = {1, 0.5, 1, 0.5}};
  const Topology star = topology::star(4, {.bytes_per_second = 1e15, .latency = std::chrono::nanoseconds(0)});
  const auto found = by_policy(pushing, star, "group", {.steps = 300, .unequal = two_kinds});
  EXPECT_THAT(found.servers.value().groups, testing::ElementsAre(0, 1, 0, 1));
  // Samples are shared by speed, so that both groups take a step of everybody's at the same time.
  EXPECT_NEAR(found.step_ns, 2000 * 4 / 3.0, 20);
  EXPECT_NEAR(found.rounds_per_step, 2, 0.02);
  // Inside a group an average and what its first rank tells the others are waited for; the push is under way meanwhile.
  const Topology slow = topology::star(4, one_byte_a_ns);
  const auto waited = by_policy(pushing, slow, "group", {.steps = 300, .unequal = two_kinds});
  EXPECT_NEAR(waited.step_ns, found.step_ns + 1000 + 1000, 10);
}

TEST(Servers, RefusesWhatTheyCannotServe) {
  const Topology star = topology::star(4, one_byte_a_ns);
  const auto reason = [&](const Workload& workload, const StepSimulation& how = {}) -> std::string {
    try {
      EXPECT_NO_THROW(by_policy(pushing, star, "ad-psgd", {.steps = 1}));
      by_policy(workload, star, "async", {.steps = 1}, how);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(reason(pushing), "");
  Workload divided = pushing;
  divided.degrees.tensor = 2;
  EXPECT_THAT(reason(divided), testing::HasSubstr("whole model"));
  Workload rows = pushing;
  rows.layers[0].forward.communications = {{Collective::all_to_all, 10'000, Role::data}};
  EXPECT_THAT(reason(rows), testing::HasSubstr("collectives beside averages"));
  EXPECT_THAT(reason(pushing, {.options = {.slowdown = {1, 1, 1, 2}}}), testing::HasSubstr("--speeds"));
  EXPECT_THROW(by_policy(pushing, topology::star(300, one_byte_a_ns), "async", {.steps = 1}), Error);
  EXPECT_THROW(by_policy(pushing, star, "async:servers=4", {.steps = 1}), Error);
}

}  // namespace
}  // namespace ranvier
