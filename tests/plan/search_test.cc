// Designs beyond one convex problem, against brute force and by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "plan/certificate.h"
#include "plan/libra_cases.h"
#include "ranvier/design_search.h"
#include "ranvier/error.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

using testing::HasSubstr;

DesignProblem with_budget(StepTime step, const std::vector<double>& costs, const std::vector<std::string>& texts) {
  const std::size_t n = step.dimensions;
  return {.step = std::move(step), .dollars_per_gbps = costs, .constraints = constraints(texts, n)};
}

// ---- Overlap.

Workload two_blocks(double compute) {
  Workload workload{.name = "two", .degrees = {}, .layers = {{.name = "a"}, {.name = "b"}}};
  for (Layer& layer : workload.layers) {
    layer.forward = {.compute_ns = compute, .communications = {{Collective::all_reduce, 4000, Role::tensor}}};
    layer.input_gradient = layer.forward;
    layer.weight_gradient = {.compute_ns = compute, .communications = {{Collective::all_reduce, 9000, Role::data}}};
  }
  return workload;
}

Placement tensor_inside() {
  Placement placement;
  placement.of(Role::tensor) = {4, 1};
  placement.of(Role::data) = {1, 8};
  return placement;
}

double time_of(const StepGraph& graph, const std::vector<double>& split) {
  const StepTime path{.dimensions = 2, .terms = graph.terms, .cases = {longest_path(graph, split)}};
  return step_ns(path, split);
}

TEST(Overlap, IsNeverSlowerThanWaitingAndNeverFasterThanComputing) {
  const NetworkShape shape = parse_network("FC(4)_SW(8)");
  for (const double compute : {0.0, 100.0, 1000.0, 1e6}) {
    const Workload workload = two_blocks(compute);
    const StepGraph graph = step_graph(workload, tensor_inside(), shape);
    DesignProblem overlapped = with_budget({.dimensions = 2}, {1, 10}, {"b0+b1=60"});
    const Design best = solve_overlapped(overlapped, graph);
    expect_certified(overlapped, best);
    const Design waiting = solve(with_budget(step_time(workload, tensor_inside(), shape), {1, 10}, {"b0+b1=60"}));
    EXPECT_LE(best.time_ns, waiting.time_ns * (1 + 1e-9));
    EXPECT_GE(best.time_ns, 6 * compute);
    // No other split is faster, by the graph itself.
    for (double b0 = 1; b0 < 60; b0 += 0.5) EXPECT_GE(time_of(graph, {b0, 60 - b0}), best.time_ns * (1 - 1e-6)) << b0;
  }
}

TEST(Overlap, HidesGradientsBehindComputing) {
  const NetworkShape shape = parse_network("FC(4)_SW(8)");
  const Workload workload = two_blocks(1e6);
  const StepGraph graph = step_graph(workload, tensor_inside(), shape);
  // Of the gradients only those of the first layer show, beside the tensor collectives: they wait for its weight
  // gradient, and its input gradient is computed meanwhile.
  EXPECT_NEAR(time_of(graph, {30, 30}), 6e6 + 4 * 6000.0 / 30, 1e-6);
}

// Several workloads, any failure and whole links, each by trying all splits.
TEST(Overlap, OfSeveralStepsAddsUpTheirLongestWays) {
  const NetworkShape shape = parse_network("FC(4)_SW(8)");
  const std::vector graphs{step_graph(two_blocks(100), tensor_inside(), shape),
                           step_graph(two_blocks(700), tensor_inside(), shape)};
  const std::vector<double> weights{3, 0.5};
  const StepGraph both = weighted_sum(graphs, weights);
  DesignProblem problem = with_budget({.dimensions = 2}, {1, 10}, {"b0+b1=60"});
  const Design best = solve_overlapped(problem, both);
  expect_certified(problem, best);
  double least = INFINITY;
  for (double b0 = 1; b0 < 60; b0 += 0.5) {
    const std::vector<double> split{b0, 60 - b0};
    const double time = 3 * time_of(graphs[0], split) + 0.5 * time_of(graphs[1], split);
    EXPECT_NEAR(time_of(both, split), time, 1e-9 * time);
    least = std::min(least, time);
  }
  EXPECT_LE(best.time_ns, least * (1 + 1e-6));
  EXPECT_GE(best.time_ns, least * (1 - 0.01));
}

TEST(Overlap, WithAnyFailureIsTheWorstOfThem) {
  const NetworkShape shape = parse_network("FC(4)_SW(8)");
  const StepGraph graph = step_graph(two_blocks(300), tensor_inside(), shape);
  const StepGraph any = with_any_failure(graph, shape, 4);
  DesignProblem problem = with_budget({.dimensions = 2}, {1, 10}, {"b0+b1=60"});
  const Design best = solve_overlapped(problem, any);
  expect_certified(problem, best);
  double least = INFINITY;
  for (double b0 = 1; b0 < 60; b0 += 0.5) {
    // A link less among four is as two thirds of the bandwidth, a NIC of four less as three quarters.
    const double worst = std::max(time_of(graph, {b0 * 2 / 3, 60 - b0}), time_of(graph, {b0, (60 - b0) * 3 / 4}));
    EXPECT_NEAR(time_of(any, {b0, 60 - b0}), worst, 1e-9 * worst);
    least = std::min(least, worst);
  }
  EXPECT_LE(best.time_ns, least * (1 + 1e-6));
  EXPECT_GE(best.time_ns, least * (1 - 0.01));
  // Nothing is sent: nothing fails.
  EXPECT_EQ(with_any_failure(StepGraph{.dimensions = 2, .nodes = {{.constant_ns = 5}}}, shape, 4).nodes.size(), 1u);
}

TEST(Overlap, OfWholeLinksIsTheBestOfAll) {
  const NetworkShape shape = parse_network("FC(4)_SW(8)");
  for (const double compute : {50.0, 400.0})
    for (const Objective objective : {Objective::time, Objective::time_cost}) {
      const StepGraph graph = step_graph(two_blocks(compute), tensor_inside(), shape);
      DesignProblem problem = with_budget({.dimensions = 2}, {1, 10}, {"b0+b1<=60"});
      problem.objective = objective;
      const std::vector<double> units{7, 4};
      const Design best =
          solve_overlapped(problem, graph, [&](DesignProblem& paths) { return solve_discrete(paths, units); });
      double least = INFINITY;
      for (double b0 = 7; b0 < 60; b0 += 7)
        for (double b1 = 4; b0 + b1 <= 60; b1 += 4) {
          const double time = time_of(graph, {b0, b1});
          least = std::min(least, objective == Objective::time ? time : time * (b0 + 10 * b1) / time_cost_scale);
        }
      EXPECT_NEAR(best.objective, least, 2e-6 * least);
      EXPECT_LE(best.lower_bound, least * (1 + 1e-9));
    }
}

// ---- Orders.

TEST(Orders, ReachWhatTheLoadsOfSetsPromise) {
  const NetworkShape shape = parse_network("RI(4)_FC(8)_SW(2)");
  Workload workload{.name = "one", .degrees = {}, .layers = {{.name = "layer"}}};
  workload.layers[0].weight_gradient.communications = {{Collective::all_reduce, 1e6, Role::data}};
  const Communication& communication = workload.layers[0].weight_gradient.communications[0];
  Placement placement;
  placement.of(Role::data) = {4, 8, 2};
  const StepTime mixed = step_time(workload, placement, shape, {.order = ChunkOrder::mixed});
  for (const std::vector<double>& split : {std::vector<double>{20, 20, 20}, {50, 5, 5}, {1, 30, 29}, {10, 3, 47}}) {
    const auto orders = best_orders(communication, placement.of(Role::data), split);
    std::vector<double> sent(3, 0);
    double shares = 0;
    for (const auto& [order, share] : orders) {
      double left = 2 * 1e6 * share;
      for (const std::size_t i : order) {
        sent[i] += left * (placement.of(Role::data)[i] - 1) / placement.of(Role::data)[i];
        left /= placement.of(Role::data)[i];
      }
      shares += share;
    }
    EXPECT_NEAR(shares, 1, 1e-9);
    double slowest = 0;
    for (std::size_t i = 0; i < 3; ++i) slowest = std::max(slowest, sent[i] / split[i]);
    EXPECT_NEAR(slowest, step_ns(mixed, split), 1e-6 * slowest);
    // Of which nothing but this collective is a part.
    const auto busy = utilisation(mixed, split, step_ns(mixed, split));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(busy[i], sent[i] / split[i] / slowest, 1e-6) << i;
  }
}

// A part that was scattered grows from dimension to dimension: 1 MB of which 1/32 is there goes over the slow switch
// while it is short.
TEST(Orders, OfAnAllGatherTheLastDimensionSendsMost) {
  const GroupSizes group{4, 8};
  const std::vector<double> gbps{100, 10};
  const auto only_order = [&](Collective collective) {
    const auto orders = best_orders({collective, 1e6, Role::data}, group, gbps);
    return orders.size() == 1 ? orders[0].dimensions : std::vector<std::size_t>();
  };
  EXPECT_THAT(only_order(Collective::all_gather), testing::ElementsAre(1, 0));
  EXPECT_THAT(only_order(Collective::reduce_scatter), testing::ElementsAre(0, 1));
  EXPECT_THAT(only_order(Collective::all_reduce), testing::ElementsAre(0, 1));
}

// ---- Failures.

TEST(Failures, AreTheWorstOfAny) {
  const NetworkShape shape = parse_network("RI(4)_FC(5)_SW(8)");
  const StepTime step{.dimensions = 3, .terms = {term({60, 30, 10})}, .cases = {{.constant_ns = 7, .weights = {2}}}};
  const StepTime worst = with_any_failure(step, shape, 4);
  EXPECT_NEAR(step_ns(worst, std::vector<double>{1, 1e9, 1e9}), 7 + 2 * 60 * 2, 1e-6);
  EXPECT_NEAR(step_ns(worst, std::vector<double>{1e9, 1, 1e9}), 7 + 2 * 30 * 4.0 / 3, 1e-6);
  EXPECT_NEAR(step_ns(worst, std::vector<double>{1e9, 1e9, 1}), 7 + 2 * 10 * 4.0 / 3, 1e-6);
  const DesignProblem problem = with_budget(worst, {1, 1, 1}, {"b0+b1+b2=100"});
  const Design robust = solve(problem);
  expect_certified(problem, robust);
  const Design fair = solve(with_budget(step, {1, 1, 1}, {"b0+b1+b2=100"}));
  EXPECT_LT(robust.time_ns, step_ns(worst, fair.bandwidth_gbps));  // it was made for that
  EXPECT_GT(step_ns(step, robust.bandwidth_gbps), fair.time_ns);   // and pays for it
}

TEST(Failures, ThatNothingSurvivesAreRefused) {
  const StepTime step{.dimensions = 2, .terms = {term({1, 1})}, .cases = {{.weights = {1}}}};
  EXPECT_THROW(with_any_failure(step, parse_network("FC(2)_SW(4)"), 2), Error);
  EXPECT_THROW(with_any_failure(step, parse_network("FC(4)_SW(4)"), 1), Error);
}

// A failure divides the bandwidth of one dimension; the load of a set of them is not known to be served by a sum then.
TEST(Failures, WithMixedOrdersAreRefused) {
  const NetworkShape shape = parse_network("FC(4)_SW(4)");
  const Workload workload = make_workload("resnet50");
  const Placement placement = place(workload.degrees, shape);
  const StepTime mixed = step_time(workload, placement, shape, {.order = ChunkOrder::mixed});
  EXPECT_THAT(support::refusal([&] { with_any_failure(mixed, shape, 2); }), HasSubstr("mixed chunk orders"));
  // One dimension has one order.
  const NetworkShape single = parse_network("SW(16)");
  const StepTime alone = step_time(workload, place(workload.degrees, single), single, {.order = ChunkOrder::mixed});
  EXPECT_EQ(with_any_failure(alone, single, 2).cases.size(), 1u);
}

// ---- Whole links.

TEST(Discrete, IsTheBestOfAllWholeNumbers) {
  for (const Objective objective : {Objective::time, Objective::time_cost}) {
    DesignProblem problem = with_budget({.dimensions = 3,
                                         .terms = {term({600, 70, 9}), term({0, 90, 40})},
                                         .cases = {{.constant_ns = 20, .weights = {2, 3}}}},
                                        {1, 4, 9}, {"b0+b1+b2<=100"});
    problem.objective = objective;
    const std::vector<double> units{6, 7, 8};
    double least = INFINITY;
    for (int i = 1; i < 17; ++i)
      for (int j = 1; j < 15; ++j)
        for (int k = 1; k < 13; ++k) {
          const std::vector<double> b{i * 6.0, j * 7.0, k * 8.0};
          if (b[0] + b[1] + b[2] > 100) continue;
          const double time = step_ns(problem.step, b);
          const double cost = b[0] + 4 * b[1] + 9 * b[2];
          least = std::min(least, objective == Objective::time ? time : time * cost / time_cost_scale);
        }
    const Design design = solve_discrete(problem, units);
    EXPECT_NEAR(design.objective, least, 2e-6 * least);
    EXPECT_LE(design.lower_bound, least * (1 + 1e-9));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(std::remainder(design.bandwidth_gbps[i], units[i]), 0, 1e-5) << i;
  }
}

// By trying all: of those that are as good as the best, the cheapest. Few bytes in some dimensions make many ties.
TEST(Discrete, OfEquallyGoodChoicesIsTheCheapest) {
  std::mt19937 random(7);
  const auto from = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  int with_ties = 0;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    const auto n = static_cast<std::size_t>(from(2, 3));
    StepTime step{.dimensions = n, .terms = {}, .cases = {{.constant_ns = static_cast<double>(from(0, 2) * 10)}}};
    for (int k = from(1, 2); k > 0; --k) {
      std::vector<double> bytes;
      for (std::size_t i = 0; i < n; ++i)
        bytes.push_back(from(0, 3) == 0 ? 0 : from(1, 3) == 1 ? from(1, 9) : from(50, 500));
      bytes[0] += 300;
      step.terms.push_back(term(bytes));
      step.cases[0].weights.push_back(from(1, 3));
    }
    std::vector<double> units, costs;
    for (std::size_t i = 0; i < n; ++i) {
      units.push_back(i == 0 ? from(25, 45) : from(4, 9));
      costs.push_back(from(1, 9));
    }
    DesignProblem problem = with_budget(step, costs, {n == 2 ? "b0+b1<=150" : "b0+b1+b2<=150"});
    problem.objective = from(0, 3) == 0 ? Objective::time_cost : Objective::time;

    struct Choice {
      double objective;
      double cost;
    };
    std::vector<Choice> all;
    std::vector<double> b(n);
    const std::function<void(std::size_t, double)> choose = [&](std::size_t i, double left) {
      if (i == n) {
        double cost = 0;
        for (std::size_t d = 0; d < n; ++d) cost += costs[d] * b[d];
        const double time = step_ns(step, b);
        if (std::isfinite(time))
          all.push_back({problem.objective == Objective::time ? time : time * cost / time_cost_scale, cost});
        return;
      }
      for (b[i] = 0; b[i] <= left; b[i] += units[i]) choose(i + 1, left - b[i]);
    };
    choose(0, 150);
    const double least = std::ranges::min_element(all, {}, &Choice::objective)->objective;
    std::vector<double> tied;
    for (const Choice& each : all)
      if (each.objective <= least * (1 + 1e-9)) tied.push_back(each.cost);
    const double cheapest = *std::ranges::min_element(tied);
    with_ties += static_cast<int>(*std::ranges::max_element(tied) > cheapest);

    const Design design = solve_discrete(problem, units);
    EXPECT_NEAR(design.objective / least, 1, 1e-9);
    EXPECT_NEAR(design.cost_usd, cheapest, 1e-6 * cheapest);
    EXPECT_LE(design.lower_bound, least * (1 + 1e-9));
    EXPECT_GE(design.lower_bound, least * (1 - 1.1e-6));
  }
  EXPECT_GE(with_ties, 5);
}

// Hundreds of links of each dimension, where rounding and branching alone take long.
TEST(Discrete, OfManyLinksIsTheBestOfAll) {
  std::mt19937 random(11);
  const auto from = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    StepTime step{.dimensions = 3, .terms = {}, .cases = {{.constant_ns = static_cast<double>(from(0, 3) * 5)}}};
    for (int k = 0; k < 3; ++k) {
      step.terms.push_back(term({from(1, 4) * 100.0, from(0, 3) * 37.0, from(0, 2) * 11.0}));
      step.cases[0].weights.push_back(from(1, 3));
    }
    step.terms.push_back(term({0, 20, 30}));
    step.cases[0].weights.push_back(1);
    DesignProblem problem = with_budget(step, {1, 4, 9}, {"b0+b1+b2<=300", "b1>=b2"});
    problem.objective = round % 3 == 0 ? Objective::time_cost : Objective::time;
    const std::vector<double> units{1, from(1, 2) * 0.5, from(1, 3) * 0.5};
    double least = INFINITY;
    for (double b1 = units[1]; b1 < 300; b1 += units[1])
      for (double b2 = units[2]; b2 <= b1 && b1 + b2 < 300; b2 += units[2]) {
        const double most = std::floor(300 - b1 - b2);
        // More of b0 is never slower; time x cost falls and rises once.
        for (double b0 = problem.objective == Objective::time ? most : 1; b0 <= most; b0 += b0 < 100 ? 1 : 2) {
          const double time = step_ns(step, std::vector{b0, b1, b2});
          const double cost = b0 + 4 * b1 + 9 * b2;
          least = std::min(least, problem.objective == Objective::time ? time : time * cost / time_cost_scale);
        }
      }
    const Design design = solve_discrete(problem, units);
    EXPECT_LE(design.objective, least * (1 + 1e-6));
    EXPECT_LE(design.lower_bound, least * (1 + 1e-9));
    EXPECT_GE(design.lower_bound, design.objective * (1 - 1.1e-6));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(std::remainder(design.bandwidth_gbps[i], units[i]), 0, 1e-5) << i;
  }
}

TEST(Discrete, NamesTheLinksThatABudgetLeavesNoRoomFor) {
  const DesignProblem problem =
      with_budget({.dimensions = 2, .terms = {term({5, 5})}, .cases = {{.weights = {1}}}}, {1, 1}, {"b0+b1<=15"});
  EXPECT_THAT(support::refusal([&] {
                solve_discrete(problem, {10, 10});
              }),
              testing::AllOf(HasSubstr("'b0+b1<=15'"), HasSubstr("'b0 >= 10 (whole links of --link-gbps)'")));
}

TEST(Discrete, WithoutAnyWholeSolutionSaysSo) {
  const DesignProblem problem =
      with_budget({.dimensions = 2, .terms = {term({5, 5})}, .cases = {{.weights = {1}}}}, {1, 1}, {"b0+b1=101"});
  try {
    solve_discrete(problem, {10, 10});
    ADD_FAILURE() << "101 was made of tens";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no whole numbers of links meet the constraints"));
  }
}

// ---- Shapes.

TEST(Shapes, AreAllOrderedSplits) {
  std::vector<std::string> found;
  for (const auto& shape : shapes({.npus = 8, .fewest_dimensions = 1, .most_dimensions = 3, .blocks = {Block::ring}}))
    found.push_back(to_string(shape));
  EXPECT_THAT(found, testing::UnorderedElementsAre("RI(8)", "RI(2)_RI(4)", "RI(4)_RI(2)", "RI(2)_RI(2)_RI(2)"));
  EXPECT_EQ(shapes({.npus = 8, .fewest_dimensions = 2, .most_dimensions = 2}).size(), 2 * 9u);
  EXPECT_THAT(shapes({.npus = 7, .fewest_dimensions = 2}), testing::IsEmpty());
  EXPECT_THROW(shapes({.npus = 1 << 12, .most_shapes = 1000}), Error);
  constexpr std::int64_t larger_than_any_dimension = 1048583;  // and prime
  EXPECT_THAT(shapes({.npus = 720 * larger_than_any_dimension, .fewest_dimensions = 1, .most_dimensions = 8}),
              testing::IsEmpty());
}

// ---- Pareto.

TEST(Pareto, GetsFasterTheMoreItCosts) {
  DesignProblem problem = gpt3_4d();
  problem.constraints = constraints({"b0+b1+b2+b3=500"}, 4);
  problem.constraints[0].budget = true;
  const auto front = pareto_front(problem, 12);
  ASSERT_EQ(front.size(), 12u);
  for (std::size_t i = 1; i < front.size(); ++i) {
    EXPECT_GT(front[i].cost_usd, front[i - 1].cost_usd);
    EXPECT_LT(front[i].time_ns, front[i - 1].time_ns * (1 + 1e-9));
  }
  EXPECT_NEAR(front.back().time_ns, solve(problem).time_ns, 1e-6 * front.back().time_ns);
  const std::string svg = pareto_svg(front, "GPT-3");
  EXPECT_THAT(svg, HasSubstr("<svg"));
  EXPECT_EQ(std::count(svg.begin(), svg.end(), '<'), std::count(svg.begin(), svg.end(), '>'));
}

// Each point takes what the graph says of its bandwidths, also of paths that the fastest design did not need.
TEST(Pareto, OfAGraphFindsItsPathsForEachCost) {
  const NetworkShape shape = parse_network("FC(4)_SW(8)");
  const StepGraph graph = step_graph(two_blocks(1000), tensor_inside(), shape);
  DesignProblem problem = with_budget({.dimensions = 2}, {1, 10}, {"b0+b1=60"});
  problem.constraints[0].budget = true;
  solve_overlapped(problem, graph);
  const auto front = pareto_front(problem, 12, [&](DesignProblem& each) { return solve_overlapped(each, graph); });
  ASSERT_EQ(front.size(), 12u);
  for (const ParetoPoint& point : front)
    EXPECT_NEAR(time_of(graph, point.bandwidth_gbps), point.time_ns, 1e-6 * point.time_ns);
}

// Only a budget may be left unspent; what else is said of bandwidths holds at each point.
TEST(Pareto, KeepsToEqualities) {
  DesignProblem problem = gpt3_4d();
  problem.constraints = constraints({"b0+b1+b2+b3=500", "2*b0+b1+b2+b3=600"}, 4);
  problem.constraints[0].budget = true;
  const auto front = pareto_front(problem, 12);
  ASSERT_GT(front.size(), 3u);
  double least = INFINITY;
  for (const ParetoPoint& point : front) {
    const auto& b = point.bandwidth_gbps;
    EXPECT_NEAR(2 * b[0] + b[1] + b[2] + b[3], 600, 1e-5);
    least = std::min(least, b[0] + b[1] + b[2] + b[3]);
  }
  EXPECT_LT(least, 490);
}

TEST(Pareto, OfWholeLinksHasWholeLinks) {
  DesignProblem problem =
      with_budget({.dimensions = 2, .terms = {term({600, 70})}, .cases = {{.weights = {1}}}}, {1, 4}, {"b0+b1<=100"});
  const auto front = pareto_front(problem, 40, [](DesignProblem& each) { return solve_discrete(each, {20, 5}); });
  ASSERT_GT(front.size(), 2u);
  for (std::size_t i = 0; i < front.size(); ++i) {
    EXPECT_NEAR(std::remainder(front[i].bandwidth_gbps[0], 20), 0, 1e-5);
    EXPECT_NEAR(std::remainder(front[i].bandwidth_gbps[1], 5), 0, 1e-5);
    if (i > 0) {
      EXPECT_GT(front[i].cost_usd, front[i - 1].cost_usd);
    }
  }
}

}  // namespace
}  // namespace ranvier
