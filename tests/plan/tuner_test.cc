// What the search chooses, where the right choice is known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ranvier/error.h"
#include "ranvier/plan.h"

namespace ranvier {
namespace {

Topology star(Rank world, double bytes_per_second) {
  return topology::star(world, {.bytes_per_second = bytes_per_second, .latency = std::chrono::microseconds(1)});
}

TEST(Plan, PutsTheShortestStepFirst) {
  const auto ranked = rank_plans(make_workload("resnet50"), star(8, 1e9),
                                 {.algorithms = {"ring", "direct", "binomial_tree"}, .exhaustive = true});
  EXPECT_EQ(ranked.size(), 15u);
  EXPECT_TRUE(std::ranges::is_sorted(ranked, {}, [](const PlanChoice& choice) { return choice.step.step_ns; }));
  EXPECT_NE(ranked.front().algorithm, "binomial_tree");  // it sends everything twice over one link
}

TEST(Plan, CompressesOnlyWhereThatPays) {
  PlanSearch search{
      .algorithms = {"ring"},
      .codecs = {{}, {.spec = "half", .wire_bytes = 0.5, .encode_ns_per_byte = 0.5, .decode_ns_per_byte = 0.5}}};
  EXPECT_EQ(rank_plans(make_workload("resnet50"), star(8, 1e8), search).front().codec, "half");  // 10 ns a byte
  EXPECT_EQ(rank_plans(make_workload("resnet50"), star(8, 100e9), search).front().codec, "");    // 0.01 ns a byte
}

// All of the world's rings share nothing; the sum of 3 x 4 ranks is what an algorithm can make shorter.
TEST(Plan, OfATraceIsTheFastestByItsGraph) {
  const auto sum = [](double bytes, std::string group, std::vector<std::size_t> after) {
    return Operation{.name = "sum",
                     .communication = Communication{.collective = Collective::all_reduce, .bytes = bytes},
                     .process_group = std::move(group),
                     .after = std::move(after)};
  };
  const ExecutionTrace trace{.operations = {{.name = "compute", .compute_ns = 5e4},
                                            sum(4e3, "tensor", {0}),
                                            {.name = "compute", .compute_ns = 2e4, .after = {1}},
                                            sum(2e6, "data", {2})},
                             .process_groups = {{"tensor", {0, 1, 2, 3}}, {"data", {0, 4, 8}}}};
  std::vector<PlanNetwork> networks;
  for (const double rate : {1e9, 2e9}) networks.push_back({.transport = "tcp", .topology = star(12, rate)});
  PlanSearch search{.algorithms = {"ring", "recursive_doubling", "direct", "binomial_tree", "torus:3x5"}};
  const auto ranked = rank_plans(trace, networks, search);
  search.exhaustive = true;
  const auto all = rank_plans(trace, networks, search);
  EXPECT_EQ(all.size(), 8u);  // no group has 15 ranks
  ASSERT_GE(ranked.size(), 2u);
  EXPECT_LT(ranked.size(), all.size());
  for (const PlanChoice& each : all)
    EXPECT_EQ(each.step_ns,
              simulate_step(trace, networks[each.network].topology, {.algorithm = each.algorithm}).step_ns);
  for (std::size_t i : {0, 1}) {
    EXPECT_EQ(ranked[i].algorithm, all[i].algorithm);
    EXPECT_EQ(ranked[i].network, all[i].network);
    EXPECT_EQ(ranked[i].step_ns, all[i].step_ns);
  }
  EXPECT_EQ(ranked.front().network, 1u);
  EXPECT_TRUE(std::ranges::any_of(ranked, [](const PlanChoice& each) { return each.network == 0; }));
}

// Each of 4 ranks codes its bucket and a quarter of the sum, and decodes three quarters twice.
TEST(Plan, CodesThatCannotBeAddedGoToTheOwnersOfParts) {
  const CodecSpeed codec{
      .spec = "c", .wire_bytes = 0.5, .encode_ns_per_byte = 4, .decode_ns_per_byte = 2, .summable = false};
  const StepSimulation how = with_codec({.algorithm = "ring", .bucket_bytes = 1000}, codec, 4);
  EXPECT_EQ(how.algorithm, "ring");  // of what is not coded
  EXPECT_TRUE(how.averages_by_owners);
  EXPECT_EQ(how.bucket_bytes, 500);
  EXPECT_DOUBLE_EQ(how.codec_ns_per_byte * how.gradient_scale, 4 * 1.25 + 2 * 2 * 0.75);
}

// Of 128 ranks each gradient of this model is on four, whatever the others have; and plans count as simulations do.
TEST(Plan, CodesAreOfTheReplicasOfADividedModel) {
  const Workload workload = make_workload("llama3-70b:tp=8,pp=4");
  EXPECT_EQ(averaging_ranks(workload, 128), 4);
  EXPECT_EQ(averaging_ranks({.degrees = {.tensor = 1 << 16, .pipeline = 1 << 16}}, 128), 0);
  EXPECT_EQ(averaging_ranks({.groups = {{Role::weight_gradient, {{2, 1}, {4, 8}}}}}, 128), 8);
  const CodecSpeed codec{
      .spec = "c", .wire_bytes = 0.1, .encode_ns_per_byte = 1, .decode_ns_per_byte = 1, .summable = false};
  const Topology star = topology::star(128, {});
  const auto ranked = rank_plans(workload, star, {.algorithms = {"ring"}, .bucket_bytes = {1e18}, .codecs = {codec}});
  ASSERT_EQ(ranked.size(), 1u);
  const auto alone = simulate_step(workload, star, with_codec({.algorithm = "direct", .bucket_bytes = 1e18}, codec, 4));
  EXPECT_NEAR(ranked.front().step_ns / alone.step_ns, 1, 1e-9);
}

TEST(Plan, TheTableBySizeIsAChoiceOfItsOwn) {
  PlanSearch search{.algorithms = {"ring", "one_round"}, .bucket_bytes = {64e3}, .exhaustive = true};
  const Topology star = topology::star(8, {.bytes_per_second = 1e9, .latency = std::chrono::microseconds(100)});
  search.by_size = fastest_algorithms(star, search.algorithms, 1 << 20);
  const auto ranked = rank_plans(make_workload("resnet50"), star, search);
  const auto of = [&](std::string_view algorithm) {
    return std::ranges::find(ranked, algorithm, &PlanChoice::algorithm)->step_ns;
  };
  EXPECT_LE(of(by_size), of("ring"));
  EXPECT_LE(of(by_size), of("one_round"));
}

TEST(Plan, FewMessagesForSmallVectorsFewBytesForLargeOnes) {
  const auto table = fastest_algorithms(star(8, 1e9), {"ring", "one_round", "binomial_tree"}, 1 << 22);
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].algorithm, "one_round");
  EXPECT_EQ(table[1].algorithm, "ring");
  EXPECT_EQ(table[1].up_to, std::numeric_limits<std::size_t>::max());
}

TEST(Plan, LeavesOutWhatCannotBe) {
  EXPECT_THROW(rank_plans(make_workload("resnet50"), star(2048, 1e9), {.algorithms = {"binomial_tree"}}), Error);
  const PlanSearch search{.algorithms = {"binomial_tree", "ring"}, .exhaustive = true};
  EXPECT_EQ(rank_plans(make_workload("resnet50"), star(2048, 1e9), search).size(), 5u);
}

CodecSpeed codec(const char* spec, double wire_bytes, double ns_per_byte) {
  return {.spec = spec, .wire_bytes = wire_bytes, .encode_ns_per_byte = ns_per_byte, .decode_ns_per_byte = ns_per_byte};
}

// What the bounds leave out changes neither the best, nor the second, nor the best of any codec.
TEST(Plan, BoundsLeaveOutNothingThatMatters) {
  for (const double rate : {2e7, 1e9, 2e10})
    for (const char* spec : {"star", "torus:2x4", "fat_tree:4,oversubscription=2"}) {
      SCOPED_TRACE(std::string(spec) + " at " + std::to_string(rate));
      Topology topology = make_topology(spec, 8);
      for (Link& link : topology.links) link.speed.bytes_per_second = rate;
      PlanSearch search{.algorithms = {"ring", "direct", "binomial_tree", "double_binary_tree", "recursive_doubling"},
                        .bucket_bytes = {1e6, 1e18},
                        .codecs = {{}, codec("half", 0.5, 0.2), codec("tenth", 0.1, 3)}};
      const auto found = rank_plans(make_workload("resnet50"), topology, search);
      search.exhaustive = true;
      const auto all = rank_plans(make_workload("resnet50"), topology, search);
      EXPECT_EQ(all.size(), 30u);
      EXPECT_LE(found.size(), all.size());
      const auto second = [](const std::vector<PlanChoice>& ranked) {
        const auto other = std::ranges::find_if(ranked, [&](const PlanChoice& each) {
          return each.algorithm != ranked[0].algorithm || each.codec != ranked[0].codec;
        });
        return other->step_ns;
      };
      EXPECT_LE(found[0].step_ns, all[0].step_ns * (1 + 1e-4));
      EXPECT_LE(second(found), second(all) * (1 + 1e-4));
      for (const CodecSpeed& each : search.codecs)
        EXPECT_LE(std::ranges::find(found, each.spec, &PlanChoice::codec)->step_ns,
                  std::ranges::find(all, each.spec, &PlanChoice::codec)->step_ns * (1 + 1e-3))
            << each.spec;
    }
}

// Of hundreds of tensors each bucket has a length of its own. What estimates leave out changes as little, and most of
// the simulations are saved.
TEST(Plan, EstimatesOfManyTensorsLeaveOutNothingThatMatters) {
  Workload workload{.name = "many tensors"};
  for (int i = 0; i < 150; ++i) {
    Layer layer{.name = std::to_string(i)};
    layer.forward.compute_ns = 1e5;
    layer.weight_gradient.compute_ns = 2e5;
    const double bytes = 4 * (10'000 + 7919 * i % 70'000);
    layer.weight_gradient.communications = {{.collective = Collective::all_reduce, .bytes = bytes, .role = Role::data}};
    workload.layers.push_back(layer);
  }
  Topology topology = star(6, 12e6);
  for (std::size_t i = 0; i < topology.links.size(); ++i)  // no two alike, as those that are measured
    topology.links[i].speed.bytes_per_second *= 1 + 0.003 * static_cast<double>(i);
  std::size_t asked = 0;
  PlanSearch search{.algorithms = {"ring", "direct", "binomial_tree", "recursive_doubling"},
                    .bucket_bytes = {64e3, 1e6, 1e18},
                    .codecs = {{}, codec("half", 0.5, 0.2)},
                    .enough = [&asked] { return ++asked == 0; }};
  const auto found = rank_plans(workload, topology, search);
  const std::size_t asked_of_estimates = asked;
  search.exhaustive = true;
  asked = 0;
  const auto all = rank_plans(workload, topology, search);
  EXPECT_LE(found[0].step_ns, all[0].step_ns * (1 + 1e-3));
  for (const CodecSpeed& each : search.codecs)
    EXPECT_LE(std::ranges::find(found, each.spec, &PlanChoice::codec)->step_ns,
              std::ranges::find(all, each.spec, &PlanChoice::codec)->step_ns * (1 + 2e-3))
        << each.spec;
  for (const PlanChoice& each : found) {  // none of them is an estimate
    const auto same = std::ranges::find_if(all, [&](const PlanChoice& other) {
      return other.algorithm == each.algorithm && other.codec == each.codec && other.bucket_bytes == each.bucket_bytes;
    });
    EXPECT_EQ(each.step_ns, same->step_ns);
  }
  EXPECT_LT(asked_of_estimates, asked / 2);
}

// What says after how many questions it is enough.
std::function<bool()> after(int questions) {
  return [left = questions]() mutable { return left-- <= 0; };
}

// The search ends as soon as it is told so, with what it knows: some of the choices, each as it is without an end, and
// the best of them the first.
TEST(Plan, ASearchThatIsEndedGivesTheBestThatItKnows) {
  const std::vector<std::string> algorithms{"ring", "direct", "binomial_tree", "halving_doubling"};
  const auto search = [&](const std::function<bool()>& enough) {
    return rank_plans(make_workload("resnet50"), star(6, 1e9),
                      {.algorithms = algorithms, .enough = enough, .exhaustive = true});
  };
  const auto all = search({});
  EXPECT_EQ(search([] { return false; }).size(), all.size());
  std::size_t before = 0;
  int cut = 0;
  for (int questions = 0; before < all.size() && questions < 1'000'000; questions += 1 + questions / 8) try {
      const auto found = search(after(questions));
      EXPECT_GE(found.size(), before) << questions;
      before = found.size();
      cut += found.size() < all.size() ? 1 : 0;
      EXPECT_TRUE(std::ranges::is_sorted(found, {}, &PlanChoice::step_ns));
      for (const PlanChoice& each : found)
        EXPECT_TRUE(std::ranges::any_of(all, [&](const PlanChoice& other) {
          return other.algorithm == each.algorithm && other.bucket_bytes == each.bucket_bytes &&
                 other.step_ns == each.step_ns;
        }));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::timeout);
      EXPECT_EQ(before, 0u) << "more time found less";
    }
  EXPECT_GT(cut, 5);
  EXPECT_EQ(before, all.size());
}

// What bsp takes is simulated first, also where it is not asked for.
TEST(Plan, ASearchThatIsEndedBeforeItsPolicyIsKnownSaysSo) {
  int ended = 0;
  for (int questions = 0;; questions += 1 + questions / 8) try {
      const auto found = rank_plans(make_workload("resnet50"), star(6, 1e9),
                                    {.algorithms = {"ring", "binomial_tree"},
                                     .policies = {{.spec = "local:16", .margin = 0}},
                                     .enough = after(questions),
                                     .exhaustive = true});
      EXPECT_EQ(found.front().sync, "local:16");
      break;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::timeout) << error.what();
      ++ended;
    }
  EXPECT_GT(ended, 10);
}

TEST(Plan, ATableThatIsEndedKeepsItsSmallSizes) {
  const std::vector<std::string> algorithms{"ring", "one_round", "binomial_tree"};
  const auto all = fastest_algorithms(star(8, 1e9), algorithms, 1 << 22);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(fastest_algorithms(star(8, 1e9), algorithms, 1 << 22, {.enough = after(1'000'000)}).size(), 2u);
  // Too few questions for anything; then those of some sizes, the last of which is taken to go on; at last all.
  std::size_t without = 0, some = 0;
  for (int questions = 0; questions < 100; ++questions) try {
      const auto cut = fastest_algorithms(star(8, 1e9), algorithms, 1 << 22, {.enough = after(questions)});
      EXPECT_EQ(cut.front().algorithm, all.front().algorithm) << questions;
      EXPECT_EQ(cut.back().up_to, std::numeric_limits<std::size_t>::max()) << questions;
      some += cut.size() == 1 ? 1 : 0;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::timeout);
      EXPECT_EQ(some, 0u) << "more time found less";
      ++without;
    }
  EXPECT_GT(without, 1u);
  EXPECT_GT(some, 1u);
}

TEST(Plan, TakesTheFasterOfTwoTransports) {
  const PlanNetwork slow{.transport = "tcp", .topology = star(4, 1e8)};
  const PlanNetwork fast{.transport = "udp", .topology = star(4, 2e8)};
  const auto ranked = rank_plans({make_workload("resnet50")}, {slow, fast}, {.algorithms = {"ring"}});
  EXPECT_EQ(ranked.front().network, 1u);
  EXPECT_NE(std::ranges::find(ranked, 0u, &PlanChoice::network), ranked.end());  // to be compared with
}

// A policy that averages less often is taken where it gains more than its margin, and only there.
TEST(Plan, WeighsPoliciesByTheirMargins) {
  const PlanSearch search{.algorithms = {"ring"}, .policies = plan_policies()};
  EXPECT_NE(rank_plans(make_workload("resnet50"), star(8, 2e7), search).front().sync, "bsp");
  EXPECT_EQ(rank_plans(make_workload("resnet50"), star(8, 1e12), search).front().sync, "bsp");
  const auto alone =
      rank_plans(make_workload("resnet50"), star(8, 1e12), {.algorithms = {"ring"}, .policies = {{"local:16", 0.1}}});
  EXPECT_EQ(std::ranges::count(alone, "local:16", &PlanChoice::sync), std::ssize(alone));
}

// What a bound leaves out is not a policy's best with its codec; and who has no use for a codec is not weighed with it.
TEST(Plan, NodesAndServersOfUnequalReplicasAreWeighedLikeAllElse) {
  for (const double rate : {2e8, 1e10})
    for (const bool are_unequal : {false, true}) {
      SCOPED_TRACE(std::to_string(rate) + (are_unequal ? ", unequal" : ""));
      PlanSearch search{.algorithms = {"ring", "direct", "halving_doubling"},
                        .bucket_bytes = {1e6, 1e18},
                        .codecs = {{}, codec("half", 0.5, 0.2), codec("tenth", 0.1, 3)},
                        .policies = plan_policies(true, true)};
      if (are_unequal) search.unequal.speeds = {1, 1, 1, 1, 0.2, 0.2, 0.2, 0.2};
      search.levels = [](const SyncPolicy& policy, Rank replicas) {
        if (policy.levels().size() == 1) return std::vector<std::vector<int>>{};
        std::vector<std::vector<int>> levels(3, std::vector<int>(static_cast<std::size_t>(replicas), 0));
        for (int rank = 0; rank < replicas; ++rank) {
          levels[0][static_cast<std::size_t>(rank)] = rank;
          levels[1][static_cast<std::size_t>(rank)] = rank / 4;
        }
        return levels;
      };
      search.takes_codec = [](const SyncPolicy& policy, const std::string& spec) {
        return !policy.server() || spec != "tenth";
      };
      const Topology topology = star(8, rate);
      const auto found = rank_plans(make_workload("resnet50"), topology, search);
      search.exhaustive = true;
      const auto all = rank_plans(make_workload("resnet50"), topology, search);
      EXPECT_LE(found[0].cost(), all[0].cost() * (1 + 1e-4));
      for (const PlanPolicy& policy : search.policies)
        for (const CodecSpeed& each : search.codecs) {
          const auto same = [&](const PlanChoice& choice) {
            return choice.sync == policy.spec && choice.codec == each.spec;
          };
          const auto best = std::ranges::find_if(all, same);
          EXPECT_EQ(best != all.end(), !(policy.spec == "async" || policy.spec == "group") || each.spec != "tenth")
              << policy.spec << each.spec;
          if (best == all.end() || policy.spec == "bsp") continue;
          const auto again = std::ranges::find_if(found, same);
          ASSERT_NE(again, found.end()) << policy.spec << each.spec;
          EXPECT_LE(again->cost(), best->cost() * (1 + 1e-3)) << policy.spec << each.spec;
        }
      // Somebody five times as slow keeps bsp for five times as long, where the network does not.
      if (rate > 1e9) {
        EXPECT_EQ(found[0].sync == "group" || found[0].sync == "async", are_unequal) << found[0].sync;
      }
    }
}

TEST(Plan, ReplicasThatAreNotThereAreRefused) {
  PlanSearch search{.algorithms = {"ring"}};
  search.unequal.speeds = {1, 1, 0.5};
  EXPECT_THROW(rank_plans(make_workload("resnet50"), star(2, 1e9), search), Error);
}

// ---- Placement.

// Pairs 0-2, 2-1, 1-3 and 3-0 are quick, all others slow: the ring that uses only quick ones is 0, 2, 1, 3.
Topology four_in_a_shuffled_ring() {
  Topology topology = topology::fully_connected(4);
  for (Link& link : topology.links) {
    const bool quick = (link.from + link.to) % 2 == 0 ? link.from + link.to == 2 || link.from + link.to == 4
                                                      : link.from + link.to == 3;
    link.speed.bytes_per_second = quick ? 1e9 : 1e7;
  }
  return topology;
}

TEST(Placement, PutsNeighboursNearEachOther) {
  const Topology shuffled = four_in_a_shuffled_ring();
  const auto near = near_placement(shuffled);
  ASSERT_TRUE(near);
  EXPECT_EQ(near->front(), 0);
  const Topology placed = with_placement(shuffled, *near);
  for (Rank rank = 0; rank < 4; ++rank)
    for (const LinkNumber link : placed.path(rank, (rank + 1) % 4)) {
      EXPECT_EQ(placed.links[link].from, rank);
      EXPECT_EQ(placed.links[link].to, (rank + 1) % 4);
      EXPECT_EQ(placed.links[link].speed.bytes_per_second, 1e9);
    }
  const Schedule ring = find_algorithm("ring", Collective::all_reduce).build({.world = 4});
  EXPECT_LT(simulate(ring, placed, 1 << 20, 4).ns, 0.1 * simulate(ring, shuffled, 1 << 20, 4).ns);
}

TEST(Placement, LeavesAloneWhatCannotBeImproved) {
  EXPECT_FALSE(near_placement(topology::star(8)));
  EXPECT_FALSE(near_placement(topology::ring(8)));
  EXPECT_FALSE(near_placement(topology::star(2)));
  for (const std::vector<Rank>& wrong : {std::vector<Rank>{0, 1}, {0, 1, 1, 2}, {0, 1, 2, 4}})
    EXPECT_THROW(with_placement(topology::star(4), wrong), Error);
}

// ---- Divisions.

double gradient_bytes(const Workload& workload) {
  double bytes = 0;
  for (const Layer& layer : workload.layers)
    for (const Communication& each : layer.weight_gradient.communications) bytes += each.bytes;
  return bytes;
}

// Every rank's part of the model times the parts is the model or more, for the longest stage is counted; the samples of
// a step stay.
TEST(Divisions, DivideTheModelAndNotItsSamples) {
  const auto found = divisions("llama3-8b", 16, 1e15);
  EXPECT_GT(found.size(), 8u);
  const double whole = gradient_bytes(make_workload("llama3-8b"));
  for (const auto& spec : found) {
    const Workload workload = make_workload(spec);
    const Degrees& d = workload.degrees;
    EXPECT_EQ(d.tensor * d.pipeline * d.data, 16) << spec;
    EXPECT_NE(spec.find("batch=" + std::to_string(4 * 16 / d.data)), std::string::npos) << spec;
    EXPECT_GE(gradient_bytes(workload) * d.tensor * d.pipeline, whole * (1 - 1e-9)) << spec;
  }
}

// The longest stage has the head and not the embedding: of 32 stages of Llama 3 8B, a block of 218.1 million parameters
// and 4096 x 128,256 of the head.
TEST(Divisions, OnlyOneStageHasTheHead) {
  constexpr double block = 2 * 4096.0 * (4096 + 1024) + 3 * 4096.0 * 14'336;
  constexpr double head = 4096 * 128'256.0;
  EXPECT_NEAR(gradient_bytes(make_workload("llama3-8b:tp=1,pp=32")) / 2, block + head, 1);
  EXPECT_NEAR(gradient_bytes(make_workload("llama3-8b")) / 2, 32 * block + 2 * head, 1);
  EXPECT_THAT(divisions("llama3-8b:tp=1", 32, 15e9), testing::ElementsAre("llama3-8b:tp=1,pp=32,dp=1,batch=128"));
}

TEST(Divisions, KeepWhatIsNamedAndWhatFits) {
  for (const auto& spec : divisions("llama3-70b:tp=4", 64, 1e15)) EXPECT_NE(spec.find(":tp=4,"), std::string::npos);
  EXPECT_THAT(divisions("resnet50", 16, 1e15), testing::ElementsAre("resnet50"));
  EXPECT_THAT(divisions("gpt3:tp=3", 6, 1e15),
              testing::ElementsAre("gpt3:tp=3,pp=1,dp=2,batch=16", "gpt3:tp=3,pp=2,dp=1,batch=32"));
  // 28 heads are not shared by 8.
  for (const auto& spec : divisions("turing-nlg", 16, 1e15)) EXPECT_LE(make_workload(spec).degrees.tensor, 4) << spec;
  EXPECT_THAT(divisions("gpt3:tp=12", 12, 1e15), testing::ElementsAre("gpt3:tp=12,pp=1,dp=1,batch=16"));
  for (const auto& spec : divisions("llama3-8b:layers=4", 64, 1e15))
    EXPECT_LE(make_workload(spec).degrees.pipeline, 4) << spec;
  // Of eight sequences in all no more than two replicas have four micro-batches.
  const auto in_four = divisions("llama3-70b:microbatches=4", 16, 1e15);
  EXPECT_FALSE(in_four.empty());
  for (const auto& spec : in_four) EXPECT_LE(make_workload(spec).degrees.data, 2) << spec;
  EXPECT_THAT(divisions("llama3-8b:tp=2,pp=2", 16, 40e9), testing::ElementsAre("llama3-8b:tp=2,pp=2"));
  for (const char* spec : {"llama3-8b:tp=2,pp=2", "resnet50"}) EXPECT_THROW(divisions(spec, 16, 1e6), Error) << spec;
  for (const auto& spec : divisions("llama3-8b", 64, 80e9))
    EXPECT_LE(gradient_bytes(make_workload(spec)) / 2 * 16, 80e9) << spec;
  try {
    divisions("llama3-405b", 16, 80e9);
    ADD_FAILURE() << "405 billion parameters fit into 16 x 80 GB";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("does not fit"));
  }
}

}  // namespace
}  // namespace ranvier
