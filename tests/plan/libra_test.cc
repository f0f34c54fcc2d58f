// The published tool's optima, and its traffic from the models' hyper-parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/certificate.h"
#include "plan/libra_cases.h"
#include "ranvier/design_search.h"
#include "ranvier/simulate.h"
#include "ranvier/workload.h"
#include "support/refusal.h"

namespace ranvier {
namespace {

struct Optimum {
  bool gpt3;
  std::vector<std::string> constraints;
  Objective objective;
  std::vector<double> bandwidth;
  double time_ns;
  double cost_usd;
  double value;
};

std::vector<Optimum> published() {
  const std::vector<std::string> multi{"b0+b1+b2+b3=1000", "b0=500", "b0>=b1>=b2", "b2+b3=200"};
  const std::vector<std::string> b4_500{"b0+b1+b2+b3=500"}, b4_1000{"b0+b1+b2+b3=1000"};
  const std::vector<std::string> b3_500{"b0+b1+b2=500"}, b3_1000{"b0+b1+b2=1000"};
  using enum Objective;
  return {
      {true, multi, time, {500, 300, 151.1811, 48.8189}, 708438743.4, 22966069.4, 7.0843874e+08},
      {true, multi, time_cost, {500, 300, 197.0457, 2.9543}, 743326911.4, 12934243.3, 961437.11},
      {true, b4_500, time, {338.4105, 84.6026, 58.1948, 18.7921}, 722411771.0, 9530100.7, 7.2241177e+08},
      {true, b4_500, time_cost, {448.8325, 44.5587, 4.9956, 1.6132}, 813451676.1, 4868030.2, 395990.73},
      {true, b4_1000, time, {676.9585, 169.2396, 116.2597, 37.5422}, 703430000.8, 19049899.2, 7.0343e+08},
      {true, b4_1000, time_cost, {927.6383, 63.0155, 7.0649, 2.2814}, 775667445.1, 9283827.6, 720116.28},
      {false, b3_500, time, {468.8645, 27.3504, 3.7851}, 1299287.5, 9019925.0, 1299287.5},
      {false, b3_500, time_cost, {468.8645, 27.3504, 3.7851}, 1299287.5, 9019925.0, 1171.9476},
      {false, b3_1000, time, {937.7289, 54.7009, 7.5702}, 1197300.7, 18039849.9, 1197300.7},
      {false, b3_1000, time_cost, {934.0339, 58.6999, 7.2662}, 1201568.3, 17973345.5, 2159.6202},
  };
}

// The table rounds to eight digits. The optima are flat, so that GPT-3's bandwidths are theirs to three; of ResNet-50's
// two dimensions cost the same, and either may have what is left over.
// What a constraint says does not depend on its unit.
TEST(Libra, ConstraintsInSmallUnitsAreTheSame) {
  DesignProblem problem = gpt3_4d();
  problem.constraints = constraints({"b0+b1+b2+b3=500"}, 4);
  const double free = solve(problem).time_ns;
  problem.constraints = constraints({"b0+b1+b2+b3=500", "1e-9*b0>=1e-9*b1"}, 4);  // does not bind
  const Design scaled = solve(problem);
  expect_certified(problem, scaled);
  EXPECT_NEAR(scaled.time_ns, free, 1e-6 * free);
  problem.constraints = constraints({"b0+b1+b2+b3=500", "b2>=b0"}, 4);
  const double bound = solve(problem).time_ns;
  EXPECT_GT(bound, 1.01 * free);
  problem.constraints = constraints({"1e9*b0+1e9*b1+1e9*b2+1e9*b3=5e11", "1e-9*b2>=1e-9*b0"}, 4);
  EXPECT_NEAR(solve(problem).time_ns, bound, 1e-6 * bound);
}

// What costs money limits itself where time x cost is to be least; what is free does not.
TEST(Libra, TimeCostNeedsNoUpperLimitOfWhatCosts) {
  DesignProblem problem = gpt3_4d();
  problem.objective = Objective::time_cost;
  problem.constraints = constraints({"b0+b1+b2+b3=500"}, 4);
  const Design spent = solve(problem);
  problem.constraints = constraints({"b0+b1+b2+b3>=500"}, 4);
  const Design open = solve(problem);
  expect_certified(problem, open);
  EXPECT_LE(open.objective, spent.objective * (1 + 1e-6));
  // More of everything costs more and computing takes as long: the limit is where it is best.
  EXPECT_NEAR(open.objective, spent.objective, 1e-6 * spent.objective);
  problem.dollars_per_gbps[0] = 0;
  EXPECT_THAT(support::refusal([&] { solve(problem); }),
              testing::HasSubstr("nothing limits the bandwidth of dimension 0"));
}

TEST(Libra, PublishedOptimaAreReached) {
  for (const Optimum& each : published()) {
    DesignProblem problem = each.gpt3 ? gpt3_4d() : resnet50_3d();
    problem.constraints = constraints(each.constraints, problem.step.dimensions);
    problem.objective = each.objective;
    const Design design = solve(problem);
    SCOPED_TRACE(each.value);
    EXPECT_NEAR(design.objective, each.value, 1e-7 * each.value);
    EXPECT_NEAR(design.time_ns, each.time_ns, (each.objective == Objective::time ? 1e-7 : 1e-3) * each.time_ns);
    for (std::size_t i = 0; each.gpt3 && i < each.bandwidth.size(); ++i)
      EXPECT_NEAR(design.bandwidth_gbps[i], each.bandwidth[i], 1e-3 * each.bandwidth[i]) << i;
    expect_certified(problem, design);
  }
}

TEST(Workloads, RefuseSettingsThatTheModelCannotHave) {
  for (const auto& [spec, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"gpt3:ep=4", "gpt3 has no experts for ep=4 to divide"},
           {"mixtral-8x7b:ep=64", "ep=64 does not divide the 8 experts of mixtral-8x7b"},
           {"mixtral-8x7b:ep=3", "ep=3 does not divide the 8 experts"},
           {"gpt3:tp=7", "tp=7 does not divide the 96 attention heads of gpt3"},
           {"gpt3:pp=64", "pp=64 stages are more than the 2 blocks of gpt3"},
           {"llama3-8b:layers=4,pp=8", "pp=8 stages are more than the 4 blocks of llama3-8b"},
           {"gpt3:layers=16777216", "layers=16777216 of a workload is more than 10000"},
           {"resnet50:tp=8", "resnet50 is not divided and has no setting tp; it takes dp, batch"},
           {"resnet50:microbatches=3", "has no setting microbatches"},
           {"llama3-8b:pp=2,microbatches=3", "microbatches=3 do not divide the 4 sequences of llama3-8b"},
           {"llama3-8b:pp=2,microbatches=64", "microbatches=64 do not divide"},
           {"resnet50:layers=5", "has no setting layers"},
           {"dlrm:ep=2", "dlrm is not divided and has no setting ep"}})
    EXPECT_THAT(support::refusal([spec = spec] { make_workload(spec); }), testing::HasSubstr(part)) << spec;
  // LIBRA's own degree, of 192 heads; and what does divide.
  EXPECT_EQ(make_workload("msft-1t").degrees.tensor, 128);
  for (const char* spec :
       {"gpt3:tp=32,pp=2,ep=1", "mixtral-8x7b:ep=4", "resnet50:dp=8,batch=4", "gpt3:layers=96,pp=96"})
    EXPECT_FALSE(make_workload(spec).layers.empty()) << spec;
}

// In billions, as published, of which the GPTs' embeddings are not divided over the blocks here.
// Of msft-1t the hidden size is published, of which so many blocks make 1T.
TEST(Workloads, HaveThePublishedParameters) {
  for (const auto& [spec, billions, error] :
       std::initializer_list<std::tuple<const char*, double, double>>{{"resnet50", 0.0256, 0.005},
                                                                      {"gpt3:layers=96,tp=1", 175, 0.01},
                                                                      {"turing-nlg:layers=78", 17, 0.01},
                                                                      {"msft-1t:layers=138,tp=1", 1000, 0.001},
                                                                      {"llama3-8b", 8.03, 0.001},
                                                                      {"llama3-70b:tp=1", 70.6, 0.001},
                                                                      {"llama3-405b:tp=1,pp=1", 405.9, 0.001},
                                                                      {"mixtral-8x7b:ep=1", 46.7, 0.001}}) {
    double bytes = 0;
    for (const Layer& layer : make_workload(spec).layers)
      for (const auto& each : layer.weight_gradient.communications) bytes += each.bytes;
    EXPECT_NEAR(bytes / 2e9, billions, error * billions) << spec;
  }
}

// Two all_reduces each way in a block, one behind the embedding and one before the head.
TEST(Workloads, TensorGroupsSendActivationsAndTheirGradients) {
  int forward = 0, backward = 0;
  const Workload workload = make_workload("llama3-8b:tp=8,layers=3,batch=1,sequence=1024");
  for (const Layer& layer : workload.layers) {
    for (const auto& each : layer.forward.communications) {
      EXPECT_EQ(each.bytes, 1024 * 4096 * 2);
      ++forward;
    }
    for (const auto& each : layer.input_gradient.communications) {
      EXPECT_EQ(each.bytes, 1024 * 4096 * 2);
      ++backward;
    }
  }
  EXPECT_EQ(forward, 7);
  EXPECT_EQ(backward, 7);
}

// A pipeline of p stages takes as long as m + p - 1 micro-batches where each stage has m, of all that is not averaged.
TEST(Workloads, PipelinesFillAndDrainWithWhatTheySend) {
  const NetworkShape network = parse_network("FC(4)_SW(4)_SW(2)");
  const Workload workload = make_workload("llama3-8b:tp=4,pp=4,batch=8,microbatches=4,layers=8");
  const Placement placement = place(workload.degrees, network);
  const std::vector<double> split{100, 30, 20};
  double passes = 0, averages = 0;
  for (const Layer& layer : workload.layers)
    for (const Phase* phase : {&layer.forward, &layer.input_gradient, &layer.weight_gradient}) {
      passes += phase->compute_ns;
      for (const auto& each : phase->communications) {
        const bool is_boundary = each.role == Role::pipeline;
        const auto sent = bytes_by_dimension(is_boundary ? Collective::neighbor_exchange : each.collective, each.bytes,
                                             placement.of(each.role));
        double slowest = 0;
        for (std::size_t i = 0; i < split.size(); ++i) slowest = std::max(slowest, sent[i] / split[i]);
        (phase == &layer.weight_gradient ? averages : passes) += slowest;
      }
    }
  const double expected = passes * (4 + 3) / 4 + averages;
  EXPECT_NEAR(step_ns(step_time(workload, placement, network), split), expected, 1e-9 * expected);
  Workload filled = workload;
  for (Layer& layer : filled.layers) layer.weight_gradient.communications.clear();
  const StepGraph graph = step_graph(filled, placement, network);
  const StepTime longest{.dimensions = 3, .terms = graph.terms, .cases = {longest_path(graph, split)}};
  EXPECT_NEAR(step_ns(longest, split), passes * (4 + 3) / 4, 1e-9 * expected);

  Workload alone = filled;
  alone.fills = 0;
  const Topology links = topology_of(network, {.bytes_per_second = 1e9});
  const auto once = simulate_step(alone, links);
  const auto whole = simulate_step(filled, links);
  EXPECT_NEAR(whole.step_ns / once.step_ns, 7.0 / 4, 1e-9);
  EXPECT_EQ(whole.compute_ns, once.compute_ns);
  EXPECT_NEAR(whole.idle_ns, once.compute_ns * 3 / 4, 1e-9 * once.compute_ns);
  EXPECT_NEAR(whole.communication_ns / once.communication_ns, 7.0 / 4, 1e-9);
  for (std::size_t i = 0; i < whole.links.size(); ++i)
    EXPECT_NEAR(whole.links[i].exposed_ns, once.links[i].exposed_ns, 1e-9 * once.step_ns);
}

// Of four stages in pairs of pairs the second and the third are neighbours in the outer dimension alone.
TEST(Workloads, PipelinesGoOverEveryDimensionThatTheySpan) {
  const NetworkShape network = parse_network("RI(2)_SW(2)");
  const Workload workload = make_workload("llama3-8b:pp=4,batch=4,layers=4");
  const auto ns = [&](const std::vector<double>& split) {
    return step_ns(step_time(workload, place(workload.degrees, network), network), split);
  };
  // Both ways, and three times a quarter more while it fills and drains.
  const double boundaries_ns = 2 * 1.75 * 4 * 8192 * 4096 * 2;
  EXPECT_NEAR(ns({1e9, 1}) - ns({1e9, 1e9}), boundaries_ns, 1e-6 * boundaries_ns);
  EXPECT_NEAR(ns({1, 1e9}) - ns({1e9, 1e9}), boundaries_ns, 1e-6 * boundaries_ns);
}

TEST(Libra, BundledWorkloadsFollowFromHyperParameters) {
  const NetworkShape network = parse_network("RI(4)_FC(8)_RI(4)_SW(32)");
  const Workload gpt3 = make_workload("gpt3");
  const Placement placement = place(gpt3.degrees, network);
  EXPECT_EQ(placement.of(Role::tensor), (GroupSizes{4, 4, 1, 1}));
  EXPECT_EQ(placement.of(Role::data), (GroupSizes{1, 2, 4, 32}));
  const StepTime derived = step_time(gpt3, placement, network);
  const StepTime bundled = gpt3_4d().step;
  EXPECT_EQ(derived.cases[0].constant_ns, bundled.cases[0].constant_ns);
  for (const std::vector<double>& split : {std::vector<double>{400, 50, 30, 20}, {10, 70, 40, 5}, {20, 80, 1, 300}})
    EXPECT_NEAR(step_ns(derived, split), step_ns(bundled, split), 1e-9 * step_ns(bundled, split));
}

// The other bundled files: compute time and bytes of every collective, added up.
TEST(Libra, TotalsOfTheOtherBundledWorkloadsAreReached) {
  const auto sum = [](const Workload& workload, Collective which) {
    double bytes = 0;
    for (const Layer& layer : workload.layers)
      for (const Phase* phase : {&layer.forward, &layer.input_gradient, &layer.weight_gradient})
        for (const Communication& each : phase->communications)
          if (each.collective == which) bytes += each.bytes;
    return bytes;
  };
  EXPECT_EQ(sum(make_workload("resnet50"), Collective::all_reduce), 51'005'824);
  EXPECT_EQ(sum(make_workload("dlrm"), Collective::all_reduce), 114'823'168);
  EXPECT_EQ(sum(make_workload("dlrm"), Collective::all_to_all), 2 * 4'194'304);
  EXPECT_EQ(sum(make_workload("msft-1t"), Collective::all_reduce), 8 * 805'306'368.0 + 226'492'416);
  EXPECT_EQ(sum(make_workload("msft-1t"), Collective::all_gather), 2 * 6'291'456);
  EXPECT_EQ(sum(make_workload("turing-nlg"), Collective::all_reduce), 8 * 69'730'304.0 + 869'449'728);
  double computing = 0;
  for (const Layer& layer : make_workload("turing-nlg").layers) computing += layer.forward.compute_ns;
  EXPECT_EQ(computing, 2 * (4 * 4'498'545 + 2 * 270'589 + 2 * 17'994'181 + 1057));
}

}  // namespace
}  // namespace ranvier
