// Real descents: linear regression, split over ranks that exchange as a policy says.
#include "ranvier/synchronizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "ranvier/error.h"
#include "ranvier/schedule.h"
#include "support/cluster.h"
#include "support/refusal.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

using support::run_ranks;

constexpr std::size_t size = 96;  // of the parameters

// Sample s is a row a with a target y; its loss is (a x - y)^2 / 2.
struct Sample {
  std::array<float, size> a;
  float y;
  explicit Sample(std::size_t s) : y(std::sin(static_cast<float>(3 * s))) {
    for (std::size_t i = 0; i < size; ++i) a[i] = std::cos(static_cast<float>((s + 1) * (i + 3))) / 4;
  }
};

// The mean gradient of samples first … first + count.
void add_gradient(std::span<const float> x, std::size_t first, std::size_t count, double weight, std::span<float> sum) {
  for (std::size_t s = first; s < first + count; ++s) {
    const Sample sample(s);
    float error = -sample.y;
    for (std::size_t i = 0; i < size; ++i) error += sample.a[i] * x[i];
    const auto scale = static_cast<float>(weight) * error / static_cast<float>(count);
    for (std::size_t i = 0; i < size; ++i) sum[i] += scale * sample.a[i];
  }
}

struct Descent {
  std::size_t steps = 24;
  float momentum = 0.9F;
  std::vector<std::size_t> shares = {4, 4, 4, 4};  // by rank: samples of each step
  std::size_t stop = 24;                           // there it is saved, taken down and set up anew
  std::vector<std::size_t> rest = {};              // by rank: of every sixth step, where that has others

  const std::vector<std::size_t>& of(std::size_t step) const { return rest.empty() || step % 6 != 5 ? shares : rest; }
};

constexpr float descent_rate = 0.05F;

struct Replica {
  std::vector<float> x = std::vector<float>(size, 0.1F);
  std::vector<float> m = std::vector<float>(size, 0);

  void step(std::span<const float> gradient, float momentum) {
    for (std::size_t i = 0; i < size; ++i) {
      m[i] = momentum * m[i] + gradient[i];
      x[i] -= descent_rate * m[i];
    }
  }
};

// What each step leaves on this rank, then the end.
std::vector<std::vector<float>> descend(Communicator& comm, SynchronizerOptions options, const Descent& descent,
                                        SyncTraffic* traffic = nullptr) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  const std::size_t all = std::accumulate(descent.shares.begin(), descent.shares.end(), std::size_t{0});
  options.samples = static_cast<double>(descent.shares[rank]);
  options.run = {.steps_per_epoch = 12, .steps = descent.steps};
  auto sync = std::make_unique<Synchronizer>(comm, options);
  Replica replica;
  std::vector<float> gradient(size);  // at one place: by it a codec knows what it still owes
  sync->begin(replica.x);
  const SyncTraffic at_first = sync->traffic();
  std::vector<std::vector<float>> trace;
  for (std::size_t step = 0; step < descent.steps; ++step) {
    if (step == descent.stop) {
      const auto kept = sync->save();
      sync = std::make_unique<Synchronizer>(comm, options);
      sync->begin(replica.x);
      sync->restore(kept);
    }
    const auto& shares = descent.of(step);
    if (!descent.rest.empty()) sync->set_samples(std::vector<double>(shares.begin(), shares.end()));
    const std::size_t before = std::accumulate(shares.begin(), shares.begin() + comm.rank(), std::size_t{0});
    const bool shared = sync->begin_step(step);
    std::ranges::fill(gradient, 0.0F);
    add_gradient(replica.x, step * all + before, shares[rank], shared ? sync->gradient_weight() : 1, gradient);
    if (shared) sync->gradients()->start(gradient)->wait();
    if (shared || shares[rank] > 0) replica.step(gradient, descent.momentum);
    sync->end_step(step + 1, descent_rate, replica.x);
    trace.push_back(replica.x);
  }
  sync->end(replica.x);
  trace.push_back(replica.x);
  if (traffic != nullptr) {
    const SyncTraffic now = sync->traffic();
    *traffic = {.rounds_inside = now.rounds_inside,
                .rounds_between = now.rounds_between,
                .bytes_inside = now.bytes_inside - at_first.bytes_inside,
                .bytes_between = now.bytes_between - at_first.bytes_between};
  }
  return trace;
}

// Racks only where the policy has any.
std::string places_for(std::string_view sync, const std::string& nodes, const std::string& racks) {
  return sync.find("rack") != std::string_view::npos ? nodes + "," + racks : nodes;
}

using Traces = std::vector<std::vector<std::vector<float>>>;  // by rank and step

Traces traces(Rank world, const SynchronizerOptions& options, const Descent& descent = {},
              std::vector<SyncTraffic>* traffic = nullptr, std::string_view algorithm = "auto") {
  Traces all(static_cast<std::size_t>(world));
  if (traffic != nullptr) traffic->resize(all.size());
  support::ClusterOptions cluster{.way = "shm"};
  cluster.communicator.algorithm = algorithm;
  run_ranks(
      world,
      [&](Communicator& comm) {
        const auto rank = static_cast<std::size_t>(comm.rank());
        all[rank] = descend(comm, options, descent, traffic == nullptr ? nullptr : &(*traffic)[rank]);
      },
      cluster);
  return all;
}

// One process that plays so many groups of consecutive ranks: each takes the steps of its samples, if it has any, and
// after every `period` of them all go on from their mean, weighted by the samples that each has had since the last one.
std::vector<std::vector<float>> alone(const Descent& descent, std::size_t groups = 1, std::size_t period = 1) {
  const std::size_t all = std::accumulate(descent.shares.begin(), descent.shares.end(), std::size_t{0});
  const std::size_t ranks = descent.shares.size() / groups;
  std::vector<Replica> replicas(groups);
  std::vector<std::size_t> used(groups, 0);
  std::vector<std::vector<float>> trace;
  for (std::size_t step = 0; step < descent.steps; ++step) {
    auto share = descent.of(step).begin();
    std::size_t first = step * all;
    for (std::size_t group = 0; group < groups; ++group) {
      std::size_t count = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) count += *share++;
      std::vector<float> gradient(size, 0);
      add_gradient(replicas[group].x, first, count, 1, gradient);
      if (count > 0) replicas[group].step(gradient, descent.momentum);
      used[group] += count;
      first += count;
    }
    const auto sum = static_cast<float>(std::accumulate(used.begin(), used.end(), std::size_t{0}));
    if (groups > 1 && ((step + 1) % period == 0 || step + 1 == descent.steps)) {
      std::vector<float> mean(size, 0);
      for (std::size_t group = 0; group < groups; ++group)
        for (std::size_t i = 0; i < size; ++i) mean[i] += static_cast<float>(used[group]) / sum * replicas[group].x[i];
      for (Replica& each : replicas) each.x = mean;
      used.assign(groups, 0);
    }
    trace.push_back(replicas.front().x);
  }
  trace.push_back(replicas.front().x);
  return trace;
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
  float most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// By any schedule, also in a world that is no power of two.
TEST(Synchronizer, BspIsOneProcessWithTheBigBatchToRounding) {
  int schedules = 0;
  for (const Descent& descent : {Descent{}, Descent{.shares = {4, 4, 4, 4, 4}}}) {
    const auto expected = alone(descent);
    const auto world = static_cast<Rank>(descent.shares.size());
    for (const Algorithm& algorithm : algorithms()) {
      const auto builds = [&] { algorithm.build({.collective = Collective::all_reduce, .world = world}); };
      if (support::refusal(builds) != "nothing was refused") continue;
      ++schedules;
      for (const auto& trace : traces(world, {.sync = "bsp"}, descent, nullptr, algorithm.name))
        for (std::size_t step = 0; step < trace.size(); ++step)
          ASSERT_LT(largest_difference(trace[step], expected[step]), 1e-5F) << algorithm.name;
    }
  }
  EXPECT_GT(schedules, 20);
}

TEST(Synchronizer, WeightsMakeUnevenSharesTheSameBigBatch) {
  const Descent uneven{.shares = {1, 9, 2, 4}};
  const auto expected = alone(uneven);
  for (const std::string spec : {"bsp", "local:1", "node:1", "hierarchy:node=1,rack=1,world=1"})
    for (const auto& trace : traces(4, {.sync = spec, .place = places_for(spec, "node=2", "rack=1")}, uneven))
      EXPECT_LT(largest_difference(trace.back(), expected.back()), 1e-5F) << spec;
}

// As the last steps of epochs are, where all that is left may be one worker's.
TEST(Synchronizer, AShorterStepCountsByItsSamples) {
  for (const auto& rest : {std::vector<std::size_t>{2, 1, 2, 2}, {2, 1, 0, 0}, {0, 0, 0, 1}}) {
    const Descent descent{.shares = {1, 9, 2, 4}, .stop = 8, .rest = rest};
    const auto is_near = [](const Traces& all, const std::vector<std::vector<float>>& expected) {
      return std::ranges::all_of(
          all, [&](const auto& trace) { return largest_difference(trace.back(), expected.back()) < 1e-5F; });
    };
    EXPECT_TRUE(is_near(traces(4, {.sync = "bsp"}, descent), alone(descent)));
    EXPECT_TRUE(is_near(traces(4, {.sync = "local:9"}, descent), alone(descent, 4, 9)));
    EXPECT_TRUE(is_near(traces(4, {.sync = "local:2"}, descent), alone(descent, 4, 2)));
    const SynchronizerOptions by_nodes{.sync = "node:9", .place = "node=2"};
    EXPECT_TRUE(is_near(traces(4, by_nodes, descent), alone(descent, 2, 9)));
  }
}

// Descent with momentum is linear in the gradients, so averaging afterwards is averaging before.
TEST(Synchronizer, LocalOfPeriodOneIsBsp) {
  const auto bsp = traces(4, {.sync = "bsp"});
  const auto local = traces(4, {.sync = "local:1"});
  for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_LT(largest_difference(local[rank].back(), bsp[0].back()), 1e-5F);
}

TEST(Synchronizer, OneWorkerTrainsAsIfThereWereNoPolicyBitByBit) {
  const auto expected = alone({.shares = {16}});
  for (const std::string spec :
       {"bsp", "local:5", "local:4,adapt=0.5", "post-local:4", "node:5", "hierarchy:node=1,rack=4,world=8", "slowmo:5",
        "diloco:5", "diloco:6,fragments=2,delay=1,merge=0.5", "gossip", "node:5,delay=2"})
    for (const std::string compress : {"none", "int8"}) {
      if (compress != "none" && spec == "bsp") continue;  // its codec loses bits on the way to itself
      const SynchronizerOptions options{
          .sync = spec, .compress = compress, .place = places_for(spec, "node=1", "rack=1")};
      const auto trace = traces(1, options, {.shares = {16}}).front();
      for (std::size_t step = 0; step < trace.size(); ++step) ASSERT_EQ(trace[step], expected[step]) << spec;
    }
}

TEST(Synchronizer, ANodesReplicasAreOneAndNodesMeetWhenTheirPeriodEnds) {
  const auto all = traces(4, {.sync = "node:6", .place = "node=2"});
  for (std::size_t step = 0; step < 24; ++step) {
    ASSERT_EQ(all[0][step], all[1][step]) << step;
    ASSERT_EQ(all[2][step], all[3][step]) << step;
    ASSERT_EQ(all[0][step] == all[2][step], (step + 1) % 6 == 0) << step;
  }
}

TEST(Synchronizer, NodesOfUnequalSizesCountByTheirSamples) {
  // One step of each node by itself: x = x0 - rate * g of the node; the average is that of all samples.
  const Descent step{.steps = 3, .momentum = 0, .shares = {4, 4, 4}};
  const auto expected = alone({.steps = 1, .momentum = 0, .shares = {4, 4, 4}});
  for (const auto& trace : traces(3, {.sync = "node:1", .place = "node=2"}, step))
    EXPECT_LT(largest_difference(trace.front(), expected.front()), 1e-5F);
}

TEST(Synchronizer, EverybodyEndsWithTheSameBits) {
  constexpr std::string_view coded = "hadamard:32+int4";
  for (const auto& [spec, compress] :
       std::vector<std::pair<std::string, std::string_view>>{{"local:7", "none"},
                                                             {"post-local:5,after=0.3", coded},
                                                             {"node:7", coded},
                                                             {"hierarchy:node=1,rack=2,world=4", coded},
                                                             {"hierarchy:node=2,world=10", "none"},
                                                             {"slowmo:5", "none"},
                                                             {"diloco:7", coded},
                                                             {"diloco:12,fragments=4,delay=2,merge=0.5", coded},
                                                             {"node:7,delay=4", coded},
                                                             {"local:7,delay=6", "none"},
                                                             {"local:3,adapt=0.5,most=9", "none"}}) {
    const auto all =
        traces(4, {.sync = spec, .compress = std::string(compress), .place = places_for(spec, "node=4", "rack=2")});
    for (std::size_t rank = 1; rank < 4; ++rank) ASSERT_EQ(all[rank].back(), all[0].back()) << spec << compress;
  }
}

TEST(Synchronizer, AReplicaThatHardlyCountsHasHardlyParted) {
  std::vector<SyncTraffic> traffic;
  traces(2, {.sync = "local:1,adapt=1,most=64"}, {.shares = {60, 1}}, &traffic);
  EXPECT_LT(traffic[0].rounds_inside, 24U / 2) << "the period grew";
}

TEST(Synchronizer, GossipSendsOneMessageAStepAndStaysNearTheBigBatch) {
  std::vector<SyncTraffic> traffic;
  const auto all = traces(4, {.sync = "gossip", .place = "node=2"}, {.stop = 11}, &traffic);
  const auto whole = traces(4, {.sync = "gossip", .place = "node=2"});
  const auto bsp = traces(4, {.sync = "bsp"});
  EXPECT_LT(largest_difference(all[0].back(), bsp[0].back()), 0.03F);
  for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(all[rank].back(), whole[0].back()) << "saved at step 11";
  traces(4, {.sync = "gossip", .place = "node=2"}, {}, &traffic);
  EXPECT_EQ(traffic[0].rounds_inside + traffic[0].rounds_between, 24U + 1U);
  // From rank 1 every message leaves the node; from rank 0 every second one.
  EXPECT_EQ(traffic[1].rounds_between, 24U + 1U);
  EXPECT_EQ(traffic[0].rounds_between, 12U + 1U);
}

TEST(Synchronizer, GossipByACodecStaysNearTheBigBatchAndSavesWhatPeersKnow) {
  for (const std::string compress : {"int8", "int4", "eden:2", "bf16"}) {
    const SynchronizerOptions options{.sync = "gossip", .compress = compress, .place = "node=2"};
    const auto all = traces(4, options);
    const auto resumed = traces(4, options, {.stop = 11});
    for (std::size_t rank = 0; rank < 4; ++rank) ASSERT_EQ(resumed[rank], all[rank]) << compress;
    const auto bsp = traces(4, {.sync = "bsp"});
    EXPECT_LT(largest_difference(all[0].back(), bsp[0].back()), 0.06F) << compress;
  }
}

// The sum over ranks stays what it was, and they come together; what codes lose stays with its rank.
void expect_consensus(Rank world, const std::string& compress, bool flat) {
  constexpr std::size_t length = 500;
  run_ranks(world,
            [&](Communicator& comm) {
              Synchronizer sync(comm, {.sync = "gossip", .compress = compress});
              std::vector<float> x(length, 1);
              sync.begin(x);
              // Each steps once, then nobody does.
              for (std::size_t i = 0; i < length; ++i)
                x[i] +=
                    flat ? static_cast<float>(comm.rank()) : std::sin(static_cast<float>(i * i * (comm.rank() + 1)));
              auto mean = x;
              comm.all_reduce(mean, {.op = ReduceOp::average});
              const float before = largest_difference(x, mean);
              for (std::uint64_t step = 1; step <= 100; ++step) {
                sync.begin_step(step - 1);
                sync.end_step(step, descent_rate, x);
              }
              EXPECT_LT(largest_difference(x, mean), 0.05F * before + 1e-4F) << compress << " of " << world;
              auto after = x;
              comm.all_reduce(after, {.op = ReduceOp::average});
              for (std::size_t i = 0; i < length; ++i)
                ASSERT_NEAR(after[i], mean[i], 1e-3) << compress << " of " << world;
            },
            {.way = "shm"});
}

TEST(Synchronizer, GossipConservesTheSumAndComesTogetherAlsoByACodec) {
  for (const Rank world : support::sanitized ? std::vector<Rank>{3} : std::vector<Rank>{3, 16})
    for (const std::string compress :
         {"none", "int8", "int4", "eden:2", "fp8", "mx", "natural", "hadamard+int4+huffman"})
      for (const bool flat : {false, true}) expect_consensus(world, compress, flat);
}

TEST(Synchronizer, GossipRefusesACodecThatTellsLittleAtOnce) {
  const auto gossip = make_sync_policy("gossip", {.world = 4});
  for (const std::string compress : {"topk:0.1+int8", "randk:0.1", "sign", "eden:1", "terngrad", "qsgd:1"}) try {
      check_compress(*gossip, compress);
      ADD_FAILURE() << compress;
    } catch (const Error& refused) {
      EXPECT_EQ(refused.kind(), ErrorKind::usage);
      EXPECT_THAT(refused.what(), testing::HasSubstr("'" + compress + "' may do so by"));
    }
}

TEST(Synchronizer, OneNodeHasNothingToTellItself) {
  std::vector<SyncTraffic> traffic;
  const auto all = traces(4, {.sync = "node:6", .place = "node=1"}, {}, &traffic);
  for (const SyncTraffic& each : traffic) EXPECT_EQ(each.rounds_inside, 24U);
  const auto bsp = traces(4, {.sync = "bsp"});
  EXPECT_EQ(all[0].back(), bsp[0].back());
  // Beside nodes of two, whose leaders meet.
  traces(3, {.sync = "hierarchy:node=1,rack=4,world=24", .place = "node=3,rack=2"}, {.shares = {4, 4, 4}}, &traffic);
  EXPECT_EQ(traffic[2].rounds_between + traffic[2].rounds_inside, 1U) << "alone in its rack until the end";
}

// CommunicatorOptions::node tells ranks of one machine apart, here every second one.
TEST(Synchronizer, NodesHaveTheNamesThatRanksGiveThem) {
  std::vector<std::uint64_t> between(4);
  run_ranks(4,
            [&](Communicator& comm) {
              SyncTraffic traffic;
              descend(comm, {.sync = "node:6"}, {}, &traffic);
              between[static_cast<std::size_t>(comm.rank())] = traffic.rounds_between;
            },
            {.way = "paired"});
  EXPECT_EQ(between, (std::vector<std::uint64_t>{4, 4, 0, 0})) << "of each node the first rank speaks for it";
}

TEST(Synchronizer, RoundsAndBytesAreWhatTheRuleSays) {
  std::vector<SyncTraffic> traffic;
  traces(4, {.sync = "node:6", .place = "node=2"}, {}, &traffic);
  // 24 gradient averages and, after each of 4 meetings of the two leaders, a broadcast inside each node.
  EXPECT_EQ(traffic[0].rounds_inside, 24U + 4U);
  EXPECT_EQ(traffic[0].rounds_between, 4U);
  EXPECT_EQ(traffic[1].rounds_between, 0U);
  // All-reduce between two sends everything once, whatever the algorithm that auto takes here.
  EXPECT_EQ(traffic[0].bytes_between, 4 * size * sizeof(float));
  EXPECT_EQ(traffic[2].bytes_between, 4 * size * sizeof(float));
  EXPECT_EQ(traffic[1].bytes_between, 0U);
  EXPECT_EQ(traffic[0].bytes_inside, (24 + 4) * size * sizeof(float));
  EXPECT_EQ(traffic[1].bytes_inside, 24 * size * sizeof(float));
}

TEST(Synchronizer, NoCodecWorksInsideANode) {
  const std::string sync = "hierarchy:node=4,world=12";
  std::vector<SyncTraffic> plain, coded;
  traces(4, {.sync = sync, .place = "node=2"}, {}, &plain);
  traces(4, {.sync = sync, .compress = "int8", .place = "node=2"}, {}, &coded);
  for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_EQ(coded[rank].bytes_inside, plain[rank].bytes_inside);
  EXPECT_LT(coded[0].bytes_between, plain[0].bytes_between);
}

TEST(Synchronizer, CodecsWorkOnHowFarReplicasHaveCome) {
  const auto plain = traces(4, {.sync = "local:6"});
  const auto coded = traces(4, {.sync = "local:6", .compress = "int8"});
  // Half a step of int8 of what a period changes, twice a period.
  EXPECT_LT(largest_difference(coded[0].back(), plain[0].back()), 0.005F);
  EXPECT_NE(coded[0].back(), plain[0].back());
}

// Each time since the average before, which all know, so that what a codec has to say does not grow with the run. What
// error feedback still owes is part of it.
TEST(Synchronizer, OfAnAverageUnderWayACodecSaysWhatHasChangedSinceTheOneBefore) {
  const Descent descent{.steps = 60, .stop = 99};
  const auto plain = traces(4, {.sync = "local:3,delay=2"}, descent);
  const auto coded = traces(4, {.sync = "local:3,delay=2", .compress = "topk:0.3"}, descent);
  EXPECT_LT(largest_difference(coded[0].back(), plain[0].back()), 0.02F);
  EXPECT_NE(coded[0].back(), plain[0].back());
}

// What the last evaluation sees is mean(); 23 steps end in the middle of all of these periods.
TEST(Synchronizer, TheEndIsTheMeanThatWasSeenWhateverTheCodec) {
  for (const std::string spec : {"local:7", "node:7", "hierarchy:node=2,world=10", "diloco:7", "local:5,adapt=0.5",
                                 "diloco:10,fragments=2,delay=3,merge=0.25", "diloco:10,fragments=2,delay=4",
                                 "local:10,delay=5", "node:10,delay=2"}) {
    const Traces all =
        traces(4, {.sync = spec, .compress = "topk:0.1", .place = "node=2"}, {.steps = 23, .shares = {4, 4, 4, 4}});
    for (std::size_t i = 0; i < size; ++i) {
      float mean = 0;
      for (const auto& trace : all) mean += trace[22][i] / 4;
      ASSERT_NEAR(all[0].back()[i], mean, 1e-6F) << spec << " " << i;
    }
  }
}

TEST(Synchronizer, WaysToAverageWholeBucketsWorkOnChangesToo) {
  const auto plain = traces(4, {.sync = "local:6"});
  for (const std::string compress : {"thc:8", "switchml"}) {
    const auto coded = traces(4, {.sync = "local:6", .compress = compress});
    EXPECT_LT(largest_difference(coded[0].back(), plain[0].back()), 0.02F) << compress;
    EXPECT_NE(coded[0].back(), plain[0].back()) << compress;
    for (std::size_t rank = 1; rank < 4; ++rank) ASSERT_EQ(coded[rank].back(), coded[0].back()) << compress;
  }
}

TEST(Synchronizer, DiLoCoIsNesterovOnTheMeanOfWhatWorkersHaveCome) {
  const auto local = traces(4, {.sync = "local:24"});
  const auto diloco = traces(4, {.sync = "diloco:24,rate=0.7,momentum=0.9"});
  for (std::size_t i = 0; i < size; ++i) {
    const float come = 0.1F - local[0].back()[i];
    EXPECT_NEAR(diloco[0].back()[i], 0.1F - 0.7F * (come + 0.9F * come), 1e-5F);
  }
}

// 24 steps by periods of 7: the outer optimizer is torch.optim.SGD(lr=0.7, momentum=0.9, nesterov=True), whose gradient
// is how far the mean of all replicas has come, and the last 3 steps end with the plain mean.
TEST(Synchronizer, DiLoCoOverSeveralPeriodsIsTorchsNesterovAndEndsWithThePlainMean) {
  std::array<Replica, 4> replicas;
  std::vector<float> at(size, 0.1F);
  std::vector<float> buffer(size, 0);
  const auto mean = [&](std::size_t i) {
    return (replicas[0].x[i] + replicas[1].x[i] + replicas[2].x[i] + replicas[3].x[i]) / 4;
  };
  for (std::size_t step = 0; step < 24; ++step) {
    for (std::size_t rank = 0; rank < 4; ++rank) {
      std::vector<float> gradient(size, 0);
      add_gradient(replicas[rank].x, step * 16 + 4 * rank, 4, 1, gradient);
      replicas[rank].step(gradient, 0.9F);
    }
    if ((step + 1) % 7 != 0) continue;
    for (std::size_t i = 0; i < size; ++i) {
      const float gradient = at[i] - mean(i);
      buffer[i] = 0.9F * buffer[i] + gradient;
      at[i] -= 0.7F * (gradient + 0.9F * buffer[i]);
    }
    for (Replica& each : replicas) each.x = at;
  }
  for (std::size_t i = 0; i < size; ++i) at[i] = mean(i);
  for (const auto& trace : traces(4, {.sync = "diloco:7,rate=0.7,momentum=0.9"}))
    EXPECT_LT(largest_difference(trace.back(), at), 1e-5F);
}

TEST(Synchronizer, DiLoCoWhoseOuterStepChangesNothingIsLocalBitByBit) {
  for (const std::string compress : {"none", "hadamard:32+int4"})
    EXPECT_EQ(traces(4, {.sync = "diloco:7,rate=1,momentum=0", .compress = compress}),
              traces(4, {.sync = "local:7", .compress = compress}))
        << compress;
}

// Until its first fragment is applied, streaming is local descent. That fragment is then what DiLoCo with the same
// period as the fragments' distance has made of it, mixed with what replicas have come to meanwhile.
TEST(Synchronizer, AFragmentIsAppliedItsDelayLaterAndMergedWithWhatReplicasMadeOfIt) {
  const auto local = traces(4, {.sync = "local:100"});
  const auto diloco = traces(4, {.sync = "diloco:6"});
  const auto streaming = traces(4, {.sync = "diloco:12,fragments=2,delay=3,merge=0.25"});
  for (std::size_t rank = 0; rank < 4; ++rank) {
    for (std::size_t step = 0; step < 8; ++step) ASSERT_EQ(streaming[rank][step], local[rank][step]) << step;
    for (std::size_t i = 0; i < size; ++i) {
      const float own = local[rank][8][i];
      const float expected = i < size / 2 ? 0.25F * own + 0.75F * diloco[rank][5][i] : own;
      ASSERT_FLOAT_EQ(streaming[rank][8][i], expected) << i;
    }
  }
}

// One process that plays so many groups of consecutive ranks, which hear behind `delay` more steps of the mean of where
// they were when a period ended, and move by how far that is from where they were themselves. At the end, which an
// average that is under way does not reach, their mean. Means are weighted by the samples since the last one that came.
Traces alone_delayed(const Descent& descent, std::size_t groups, std::size_t period, std::size_t delay) {
  const std::size_t all = std::accumulate(descent.shares.begin(), descent.shares.end(), std::size_t{0});
  const std::size_t ranks = descent.shares.size() / groups;
  std::vector<Replica> replicas(groups);
  std::vector<std::vector<float>> moves(groups, std::vector<float>(size));
  std::vector<std::size_t> used(groups, 0), at_begin(groups, 0);
  const auto weighted_mean = [&] {
    const auto sum = static_cast<float>(std::accumulate(used.begin(), used.end(), std::size_t{0}));
    std::vector<float> mean(size, 0);
    for (std::size_t group = 0; group < groups; ++group)
      for (std::size_t i = 0; i < size; ++i) mean[i] += static_cast<float>(used[group]) / sum * replicas[group].x[i];
    return mean;
  };
  Traces by_group(groups);
  for (std::size_t step = 1; step <= descent.steps; ++step) {
    auto share = descent.of(step - 1).begin();
    std::size_t first = (step - 1) * all;
    for (std::size_t group = 0; group < groups; ++group) {
      std::size_t count = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) count += *share++;
      std::vector<float> gradient(size, 0);
      add_gradient(replicas[group].x, first, count, 1, gradient);
      if (count > 0) replicas[group].step(gradient, descent.momentum);
      first += count;
      used[group] += count;
    }
    for (std::size_t group = 0; step > period && step % period == delay && group < groups; ++group) {
      for (std::size_t i = 0; i < size; ++i) replicas[group].x[i] += moves[group][i];
      used[group] -= at_begin[group];
    }
    if (step % period == 0) {
      const auto mean = weighted_mean();
      for (std::size_t group = 0; group < groups; ++group)
        for (std::size_t i = 0; i < size; ++i) moves[group][i] = mean[i] - replicas[group].x[i];
      at_begin = used;
    }
    for (std::size_t group = 0; group < groups; ++group) by_group[group].push_back(replicas[group].x);
  }
  for (auto& trace : by_group) trace.push_back(weighted_mean());
  return by_group;
}

TEST(Synchronizer, AnAverageUnderWayMovesReplicasAndKeepsTheStepsTheyTookMeanwhile) {
  for (const auto& shares : {std::vector<std::size_t>{4, 4, 4, 4}, {1, 9, 2, 4}})
    for (const auto& [spec, groups, period, delay] :
         {std::tuple{"node:6,delay=4", 2U, 6U, 4U}, {"local:5,delay=1", 4U, 5U, 1U}}) {
      const Descent descent{.shares = shares, .stop = 99};
      const auto expected = alone_delayed(descent, groups, period, delay);
      const auto all = traces(4, {.sync = spec, .place = "node=2"}, descent);
      for (std::size_t rank = 0; rank < 4; ++rank)
        for (std::size_t step = 0; step < descent.steps; ++step)
          ASSERT_LT(largest_difference(all[rank][step], expected[rank * groups / 4][step]), 1e-5F) << spec << step;
      for (std::size_t step = 0; step < descent.steps && groups == 2; ++step) ASSERT_EQ(all[2][step], all[3][step]);
    }
}

// It begins with the last step, or before one whose samples are nearly all one worker's.
TEST(Synchronizer, AnAverageThatComesTooLateLeavesAllThatReplicasHaveComeInTheLastOne) {
  for (const auto& rest : {std::vector<std::size_t>{}, {2, 1, 0, 0}, {0, 0, 0, 1}})
    for (const auto& [spec, groups, period, delay] : {std::tuple{"node:6,delay=4", 2U, 6U, 4U},
                                                      {"local:23,delay=5", 4U, 23U, 5U},
                                                      {"local:8,delay=1", 4U, 8U, 1U}}) {
      const Descent descent{.shares = {1, 9, 2, 4}, .stop = rest.empty() ? 99U : 23U, .rest = rest};
      const auto expected = alone_delayed(descent, groups, period, delay);
      for (const auto& trace : traces(4, {.sync = spec, .place = "node=2"}, descent))
        ASSERT_LT(largest_difference(trace.back(), expected[0].back()), 1e-5F) << spec;
    }
}

TEST(Synchronizer, AnAverageUnderWaySendsNoMoreThanOneThatIsWaitedFor) {
  std::vector<SyncTraffic> at_once, under_way;
  const Descent descent{.steps = 21, .stop = 99};  // both end with an average of the rest
  traces(4, {.sync = "node:5", .place = "node=2"}, descent, &at_once);
  traces(4, {.sync = "node:5,delay=3", .place = "node=2"}, descent, &under_way);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(under_way[rank].rounds_between, at_once[rank].rounds_between);
    EXPECT_EQ(under_way[rank].bytes_between, at_once[rank].bytes_between);
    // What began last was not taken up, so that nobody had to be told of it.
    EXPECT_EQ(under_way[rank].rounds_inside + 1, at_once[rank].rounds_inside);
  }
}

TEST(Synchronizer, AFragmentIsItsShareOfTheBytes) {
  std::vector<SyncTraffic> before, after;
  traces(4, {.sync = "diloco:24,fragments=4"}, {.steps = 5, .stop = 99}, &before);
  traces(4, {.sync = "diloco:24,fragments=4"}, {.steps = 6, .stop = 99}, &after);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(before[rank].rounds_inside, 4U) << "the end";
    EXPECT_EQ(after[rank].rounds_inside, 5U);
    EXPECT_EQ(4 * (after[rank].bytes_inside - before[rank].bytes_inside), before[rank].bytes_inside);
  }
}

TEST(Synchronizer, FragmentsKeepTensorsWhole) {
  run_ranks(2,
            [](Communicator& comm) {
              const std::vector<Tensor> tensors{{.id = 0, .rows = 90}, {.id = 1, .rows = 2}, {.id = 2, .rows = 4}};
              std::vector<float> x(size, 0.5F);
              for (const std::string spec : {"diloco:6,fragments=3", "diloco:6,fragments=2"}) {
                Synchronizer sync(comm, {.sync = spec, .compress = "powersgd:1"});
                sync.begin(x, tensors);
                sync.end_step(1, descent_rate, x);
                sync.end(x);
                EXPECT_EQ(x, std::vector<float>(size, 0.5F));
              }
              Synchronizer sync(comm, {.sync = "diloco:8,fragments=4"});
              EXPECT_THROW(sync.begin(x, tensors), Error);
            },
            {.way = "shm"});
}

TEST(Synchronizer, WhatIsSavedInTheMiddleOfAPeriodGoesOnBitForBit) {
  for (const auto& [spec, compress] : std::vector<std::pair<std::string, std::string>>{
           {"bsp", "none"},  // of a codec of gradients, whoever owns the buckets saves
           {"node:5", "topk:0.1+int8"},
           {"hierarchy:node=2,world=6", "topk:0.1+int8"},
           {"slowmo:5", "none"},
           {"slowmo:5", "topk:0.1+int8"},
           {"gossip", "none"},
           {"gossip", "int8"},
           {"post-local:5,after=0.3", "topk:0.1+int8"},  // the gradients' codec is none of this
           {"diloco:7", "topk:0.1+int8"},
           {"diloco:10,fragments=2,delay=4,merge=0.5", "topk:0.1+int8"},  // a fragment is under way then
           {"node:8,delay=5", "topk:0.1+int8"},                           // an average is
           {"local:8,delay=5", "none"},
           {"local:3,adapt=0.5,most=9", "none"}}) {
    const SynchronizerOptions options{.sync = spec, .compress = compress, .place = "node=2"};
    const auto whole = traces(4, options);
    const auto resumed = traces(4, options, {.stop = 11});
    for (std::size_t rank = 0; rank < 4; ++rank) ASSERT_EQ(resumed[rank], whole[rank]) << spec << " " << compress;
  }
}

TEST(Synchronizer, ACodecThatCorrectsMomentumIsForGradientsOnly) {
  run_ranks(2, [](Communicator& comm) {
    for (const std::string compress : {"dgc:0.1", "strong", "topk:0.1,momentum=0.9", "demo", "demo:8,decay=0.9"}) {
      EXPECT_THAT(support::refusal([&] { Synchronizer(comm, {.sync = "local:4", .compress = compress}); }),
                  testing::HasSubstr("corrects the momentum of gradients"))
          << compress;
      Synchronizer(comm, {.sync = "bsp", .compress = compress});
    }
  });
}

// Replicas that never met would be told that they agree.
TEST(Synchronizer, TakesNoStepsForWorkersAtAPaceOfTheirOwn) {
  run_ranks(2, [](Communicator& comm) {
    for (const auto& [spec, instead] : std::map<std::string, std::string>{{"async", "a ParameterServer"},
                                                                          {"ssp:2", "a ParameterServer"},
                                                                          {"group", "a ParameterServer"},
                                                                          {"ad-psgd", "a PeerAverage"}}) {
      std::vector<float> parameters(5);
      Synchronizer sync(comm, {.sync = spec});
      sync.begin(parameters);
      EXPECT_THAT(support::refusal([&] { sync.begin_step(0); }), testing::HasSubstr("take " + instead)) << spec;
    }
  });
}

}  // namespace
}  // namespace ranvier
