// Steps by their recorded graph, whose times are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/simple_layers.h"
#include "plan/simulate/groups.h"
#include "ranvier/design_search.h"
#include "ranvier/simulate.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using After = std::vector<std::size_t>;

Operation computing(double ns, After after = {}) { return {.name = "compute", .compute_ns = ns, .after = after}; }
Operation sending(Collective what, double bytes, std::string group = "", After after = {}) {
  return {.name = "send",
          .communication = Communication{.collective = what, .bytes = bytes},
          .process_group = std::move(group),
          .after = after};
}
Operation reducing(double bytes, std::string group = "", After after = {}) {
  return sending(Collective::all_reduce, bytes, std::move(group), std::move(after));
}
Operation message(Collective what, Rank from, Rank to, double bytes) {
  Operation made = sending(what, bytes);
  made.ends = {from, to};
  return made;
}

// Of two ranks that all_reduce n bytes each sends as many.
TEST(TraceStep, GoesByTheGraph) {
  const ExecutionTrace trace{.operations = {computing(1000), reducing(400, "", {0}), computing(300, {0}),
                                            computing(200, {1, 2}), reducing(800, "", {3})}};
  const auto step = simulate_step(trace, topology::star(2, one_byte_a_ns));
  EXPECT_NEAR(step.step_ns, 1000 + 400 + 200 + 800, 1e-6);
  EXPECT_NEAR(step.compute_ns, 1500, 1e-6);
  EXPECT_NEAR(step.communication_ns, 1200, 1e-6);
  EXPECT_NEAR(step.exposed_communication_ns, 100 + 800, 1e-6);
  EXPECT_THAT(step.critical_path, ElementsAre(0, 1, 3, 4));
  ASSERT_EQ(step.roles.size(), 1u);
  EXPECT_EQ(step.roles[0].role, "all ranks");
  EXPECT_NEAR(step.roles[0].exposed_ns, 900, 1e-6);
  ASSERT_EQ(step.dimensions.size(), 1u);
  EXPECT_NEAR(step.dimensions[0].communication_ns, 1200, 1e-6);
  EXPECT_NEAR(step.dimensions[0].exposed_ns, 900, 1e-6);
  for (const auto& link : step.links) {
    EXPECT_NEAR(link.exposed_ns, 900, 1e-6) << link.from;
    EXPECT_NEAR(link.hidden_ns, 300, 1e-6) << link.from;
  }
}

TEST(TraceStep, DoesOneOfEachKindAtATime) {
  const Topology pair = topology::star(2, one_byte_a_ns);
  const auto ns = [&](std::vector<Operation> operations) {
    return simulate_step({.operations = std::move(operations)}, pair).step_ns;
  };
  EXPECT_NEAR(ns({computing(3), computing(4)}), 7, 1e-6);
  EXPECT_NEAR(ns({computing(300), reducing(400)}), 400, 1e-6);
  EXPECT_NEAR(ns({reducing(400), reducing(800)}), 1200, 1e-6);
  EXPECT_NEAR(ns({sending(Collective::send, 600), sending(Collective::recv, 600)}), 600, 1e-6);
  EXPECT_NEAR(ns({sending(Collective::send, 600), sending(Collective::send, 600)}), 1200, 1e-6);
  EXPECT_NEAR(ns({computing(0), reducing(0), computing(5, {0, 1})}), 5, 1e-6);
  EXPECT_EQ(ns({computing(0)}), 0);
}

// Pairs and pairs across them have the same links.
TEST(TraceStep, WhatIsUnderWayTogetherSharesLinks) {
  ExecutionTrace trace{.operations = {reducing(1000, "a"), reducing(1000, "b")},
                       .process_groups = {{"a", {0, 1}}, {"b", {1, 3}}}};
  for (const bool fold : {true, false}) {
    const auto step = simulate_step(trace, topology::star(4, one_byte_a_ns), {.options = {.fold = fold}});
    EXPECT_NEAR(step.step_ns, 2000, 1e-6);
    EXPECT_NEAR(step.communication_ns, 2000, 1e-6);
    ASSERT_EQ(step.roles.size(), 2u);
    EXPECT_EQ(step.roles[0].role, "process group a");
    EXPECT_NEAR(step.roles[0].exposed_ns, 1000, 1e-6);
  }
  // Along the two dimensions of a torus they have links of their own.
  EXPECT_NEAR(simulate_step(trace, topology::torus({2, 2}, one_byte_a_ns)).step_ns, 1000, 1e-6);
}

// Of a block with two of each of two dimensions.
TEST(TraceStep, GroupsMayLieAlongSeveralAxes) {
  const ExecutionTrace trace{.operations = {reducing(1200, "a")}, .process_groups = {{"a", {3, 7, 2, 6}}}};
  for (const bool fold : {true, false})
    for (const Rank world : {8, 16}) {
      const auto step = simulate_step(trace, topology::star(world, one_byte_a_ns), {.options = {.fold = fold}});
      EXPECT_NEAR(step.step_ns, 2 * 3 / 4.0 * 1200, 1e-6);
    }
  ExecutionTrace along{.operations = {sending(Collective::all_gather, 400)}};
  along.operations[0].dimensions = {true, false, true, true};  // writers have four, whatever the network
  const auto step = simulate_step(along, topology_of(parse_network("SW(2)_SW(3)_SW(4)"), one_byte_a_ns));
  EXPECT_EQ(step.roles.at(0).role, "ranks along dimensions 0, 2");
  // By a ring of the eight, numbered along dimension 0 first: in each round half of the ranks send over both
  // dimensions, and the others over one.
  EXPECT_NEAR(step.step_ns, 7 * 400, 1e-6);
}

TEST(TraceStep, EveryRootedCollectiveHasItsTime) {
  const Topology star = topology::star(8, one_byte_a_ns);
  const auto ns = [&](Collective what) {
    return simulate_step({.operations = {sending(what, 400, "a")}, .process_groups = {{"a", {0, 2, 4, 6}}}}, star)
        .step_ns;
  };
  EXPECT_NEAR(ns(Collective::gather), 3 * 400, 1e-6);
  EXPECT_NEAR(ns(Collective::scatter), 3 * 400, 1e-6);
  EXPECT_GE(ns(Collective::broadcast), 400);
  EXPECT_GE(ns(Collective::reduce), 400);
  EXPECT_NEAR(ns(Collective::all_to_all), 3 * 100, 1e-6);
  EXPECT_NEAR(ns(Collective::reduce_scatter), 3 * 100, 1e-6);
}

// Who receives does not send, and their links are those of the sends.
TEST(TraceStep, MessagesGoAsFarAsTheyAreRecorded) {
  const Topology ring = topology::ring(8, one_byte_a_ns);
  const auto far = simulate_step({.operations = {message(Collective::send, 2, 5, 600)}}, ring);
  EXPECT_NEAR(far.step_ns, 3 * 600, 1e-6);  // each link carries what three ranks send
  const auto both =
      simulate_step({.operations = {message(Collective::send, 2, 3, 600), message(Collective::recv, 1, 2, 600)}}, ring);
  EXPECT_NEAR(both.step_ns, 600, 1e-6);
  EXPECT_NEAR(both.communication_ns, 1200, 1e-6);
  for (const auto& link : both.links) EXPECT_LE(link.exposed_ns, 600 + 1e-6) << link.from << " -> " << link.to;
  EXPECT_NEAR(both.dimensions.at(0).exposed_ns, 600, 1e-6);
  EXPECT_EQ(simulate_step({.operations = {message(Collective::send, 2, 2, 600)}}, ring).step_ns, 0);
}

TEST(TraceStep, RefusesGroupsThatNothingDescribes) {
  const Topology star = topology::star(8);
  const auto refusal = [&](const Operation& operation, const ProcessGroups& groups = {}) {
    return support::refusal([&] { simulate_step({.operations = {operation}, .process_groups = groups}, star); });
  };
  EXPECT_THAT(refusal(reducing(8, "7")), HasSubstr("nothing says which ranks that has; add --communicator FILE.json"));
  EXPECT_THAT(refusal(reducing(8, "a"), {{"a", {0, 8}}}), HasSubstr("communicates with rank 8, and star has 8 NPUs"));
  for (const auto& ranks :
       std::vector<std::vector<Rank>>{{0, 1, 3}, {1, 2}, {0, 1, 2}, {0, 0, 1}, {0, 3}, {0, 1, 2, 4}})
    EXPECT_THAT(refusal(reducing(8, "a"), {{"a", ranks}}),
                HasSubstr("send is of process group 'a', and 8 ranks do not divide into groups like it"));
  Operation flags = reducing(8);
  flags.dimensions = {true};
  EXPECT_THAT(support::refusal([&] {
                simulate_step({.operations = {flags}}, topology::torus({2, 4}));
              }),
              HasSubstr("says of 1 dimensions whether it spans them, and torus:2x4 has 2"));
}

TEST(TraceStep, AStragglerHoldsUpEverybody) {
  const ExecutionTrace trace{.operations = {computing(100), reducing(400, "", {0})}};
  const auto step = simulate_step(trace, topology::star(4, one_byte_a_ns), {.options = {.slowdown = {1, 1, 2, 1}}});
  EXPECT_NEAR(step.step_ns, 200 + 2 * 600, 1e-6);
}

// Where no two groups share a link, what is simulated is the longest way through the graph that designs go by.
TEST(TraceStep, TakesTheLongestWayThroughTheGraph) {
  std::mt19937 random(3);
  const auto from = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  const NetworkShape shape = parse_network("SW(2)_SW(2)_SW(2)");
  const std::vector<double> gbps{1, 3, 0.5};
  Topology topology = topology_of(shape, one_byte_a_ns);
  for (Link& link : topology.links) link.speed.bytes_per_second = gbps[static_cast<std::size_t>(link.dimension)] * 1e9;
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    ExecutionTrace trace;
    for (std::size_t i = 0; i < 40; ++i) {
      Operation made = from(0, 2) == 0 ? computing(from(0, 9) * 100) : reducing(from(0, 9) * 240);
      if (made.communication) {
        made.dimensions = {false, false, false};
        made.dimensions[static_cast<std::size_t>(from(0, 2))] = true;
      }
      for (std::size_t before = 0; before < i; ++before)
        if (from(0, 9) == 0) made.after.push_back(before);
      trace.operations.push_back(std::move(made));
    }
    const StepGraph graph = step_graph(trace, shape);
    const StepTime longest{.dimensions = 3, .terms = graph.terms, .cases = {longest_path(graph, gbps)}};
    const auto step = simulate_step(trace, topology);
    EXPECT_NEAR(step.step_ns, step_ns(longest, gbps), 1e-9 * step.step_ns);
    double path = 0;
    for (const std::size_t number : step.critical_path)
      path += step.timeline[number].end_ns - step.timeline[number].begin_ns;
    EXPECT_NEAR(path, step.step_ns, 1e-9 * step.step_ns);
    double exposed = 0, by_dimension = 0;
    for (const auto& role : step.roles) exposed += role.exposed_ns;
    for (const auto& each : step.dimensions) by_dimension += each.exposed_ns;
    EXPECT_NEAR(exposed, step.exposed_communication_ns, 1e-9 * step.step_ns);
    EXPECT_NEAR(by_dimension, exposed, 1e-9 * step.step_ns);
  }
}

}  // namespace
}  // namespace ranvier
