// What crashes leave, who notices them, and what they cost in the long run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <random>

#include "engine/control_watch.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"
#include "ranvier/simulate.h"

namespace ranvier {
namespace {

constexpr LinkSpeed half_a_us_away{.bytes_per_second = 1e9, .latency = std::chrono::nanoseconds(500)};

SimulatedRun crashed(Collective collective, const char* algorithm, const Topology& topology, Crash crash) {
  const Schedule schedule =
      find_algorithm(algorithm, collective).build({.collective = collective, .world = topology.world});
  return simulate(schedule, topology, 250 * schedule.chunks, 4, {.crash = crash});
}

std::vector<Rank> waiting(const SimulatedRun& run) {
  std::vector<Rank> whom;
  for (const RankEnd& end : run.ends) whom.push_back(end.finished ? -2 : end.waits_for);
  return whom;
}

// A ring's ranks have sent a chunk before they wait, each for the one before it. A round takes 1000 ns and two
// latencies.
TEST(Crash, StopsARingFromItsSuccessorOn) {
  const Topology star = topology::star(4, half_a_us_away);
  const auto at_once = crashed(Collective::all_reduce, "ring", star, {.rank = 2, .at_ns = 0});
  EXPECT_THAT(waiting(at_once), testing::ElementsAre(3, 0, -1, 2));
  EXPECT_FALSE(at_once.folded);
  EXPECT_NEAR(at_once.ends[3].ns, 1000, 1e-6);  // its own chunk has left
  EXPECT_NEAR(at_once.ends[0].ns, 3000, 1e-6);  // and is passed on by the next
  const auto later = crashed(Collective::all_reduce, "ring", star, {.rank = 2, .at_ns = 2500});
  EXPECT_NEAR(later.ends[3].ns, 3000, 1e-6);  // one message of the lost one had come; the second was leaving
  EXPECT_NEAR(later.ends[0].ns, 5000, 1e-6);
  EXPECT_NEAR(later.ns, 6000, 1e-6);  // the one before the lost one gets its last message, and nothing away any more
}

TEST(Crash, AfterTheEndChangesNothing) {
  const Topology star = topology::star(5, half_a_us_away);
  for (const char* algorithm : {"ring", "direct", "binomial_tree"}) {
    const auto run = crashed(Collective::all_reduce, algorithm, star, {.rank = 2, .at_ns = 1e9});
    EXPECT_THAT(waiting(run), testing::Each(-2)) << algorithm;
    const Schedule schedule =
        find_algorithm(algorithm, Collective::all_reduce).build({.collective = Collective::all_reduce, .world = 5});
    EXPECT_NEAR(run.ns, simulate(schedule, star, 250 * schedule.chunks, 4, {.fold = false}).ns, 1e-6) << algorithm;
  }
}

TEST(Crash, IsWaitedForByAllInADirectExchange) {
  const auto run =
      crashed(Collective::all_reduce, "direct", topology::star(5, half_a_us_away), {.rank = 0, .at_ns = 10});
  for (Rank rank = 1; rank < 5; ++rank) EXPECT_EQ(run.ends[static_cast<std::size_t>(rank)].waits_for, 0);
}

// The tree's root sends to rank 2, and that one to rank 3, which a lost rank 1 does not touch: unless messages go
// through it, as from 0 to 2 around a ring.
TEST(Crash, TakesWhatGoesThroughTheRankAlong) {
  const Crash crash{.rank = 1, .at_ns = 0};
  const auto star = crashed(Collective::broadcast, "binomial_tree", topology::star(4, half_a_us_away), crash);
  EXPECT_TRUE(star.ends[2].finished);
  EXPECT_TRUE(star.ends[3].finished);
  const auto ring = crashed(Collective::broadcast, "binomial_tree", topology::ring(4, half_a_us_away), crash);
  EXPECT_EQ(ring.ends[2].waits_for, 0);
  EXPECT_EQ(ring.ends[3].waits_for, 2);
}

TEST(Crash, IsOfARankThatIsThere) {
  EXPECT_THROW(crashed(Collective::all_reduce, "ring", topology::star(4), {.rank = 4}), Error);
}

// Of a process the connections close: all its neighbours see that a way's latency later.
TEST(Detection, OfAProcessTakesTheLatencyOfTheWay) {
  const auto found = simulate_detection(topology::star(16, half_a_us_away), 5, Loss::process);
  std::vector<Rank> by;
  for (const auto& each : found.by_themselves) {
    by.push_back(each.rank);
    EXPECT_NEAR(each.ns, 1000, 1e-6);
  }
  EXPECT_THAT(by, testing::UnorderedElementsAreArray(engine::control_neighbours(5, 16)));
  EXPECT_NEAR(found.all_know_ns, 2000, 1e-6);
}

// A host is silent: its last heartbeat is up to a quarter of a second old, and the limit counts from there.
TEST(Detection, OfAHostTakesTheLimitOfSilence) {
  const CommunicatorOptions options;
  const double limit = std::chrono::duration<double, std::nano>(options.dead_after).count();
  const double beat = std::chrono::duration<double, std::nano>(options.suspect_after).count() / 4;
  for (const Rank world : {2, 3, 16, 1000}) {
    const auto found = simulate_detection(topology::star(world, half_a_us_away), world / 2, Loss::host);
    ASSERT_FALSE(found.by_themselves.empty()) << world;
    EXPECT_GE(found.by_themselves.front().ns, limit - beat) << world;
    EXPECT_LE(found.by_themselves.front().ns, limit + beat) << world;
    EXPECT_LE(found.all_know_ns - found.by_themselves.front().ns, std::log2(world) * 1000 + 1) << world;
  }
}

TEST(Detection, ReachesEverybodyOnEveryNetwork) {
  for (const char* spec : {"star", "ring", "torus:4x4", "mesh:2x8", "mesh:16", "fat_tree:4"})
    for (Rank lost = 0; lost < 16; ++lost)
      for (const Loss loss : {Loss::host, Loss::process})
        EXPECT_TRUE(std::isfinite(simulate_detection(make_topology(spec, 16), lost, loss).all_know_ns))
            << spec << " without " << lost;
}

TEST(Detection, NeedsSomebodyWhoIsLeft) {
  EXPECT_THROW(simulate_detection(topology::star(1), 0, Loss::host), Error);
  EXPECT_THROW(simulate_detection(topology::star(4), 4, Loss::host), Error);
}

// Time for each step that counts of a run that fails by chance, as often as the model says.
double tried_out(double step_s, Rank world, const FailureModel& model, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> next(world / (model.mtbf_hours * 3600));
  constexpr int checkpoints = 20'000;
  const double segment = static_cast<double>(model.checkpoint_steps) * step_s + model.checkpoint_s;
  double now = 0;
  double fails = next(random);
  for (int done = 0; done < checkpoints;) {
    double busy = segment;
    for (double way_back = 0;; way_back = model.detection_s + model.recovery_s) {
      if (now + way_back + busy <= fails) {
        now += way_back + busy;
        break;
      }
      now = fails;
      fails = now + next(random);
    }
    ++done;
  }
  return now / (checkpoints * static_cast<double>(model.checkpoint_steps));
}

TEST(Failures, CostWhatARunThatFailsByChanceTakes) {
  for (const FailureModel& model :
       {FailureModel{.mtbf_hours = 1000, .checkpoint_s = 8, .checkpoint_steps = 100},
        FailureModel{.mtbf_hours = 200, .checkpoint_s = 1, .checkpoint_steps = 20},
        FailureModel{.mtbf_hours = 100, .recovery_s = 200, .checkpoint_s = 30, .checkpoint_steps = 50}}) {
    const StepWithFailures found = with_failures(2e9, 1000, model);
    EXPECT_NEAR(found.step_ns / 1e9 / tried_out(2, 1000, model, 7), 1, 0.02);
    EXPECT_NEAR(found.goodput, 2e9 / found.step_ns, 1e-12);
    EXPECT_EQ(found.checkpoint_steps, model.checkpoint_steps);
  }
}

TEST(Failures, TheBestIntervalIsFound) {
  for (const double mtbf : {20.0, 1000.0, 50'000.0})
    for (const double checkpoint : {0.0, 0.1, 8.0, 120.0}) {
      FailureModel model{.mtbf_hours = mtbf, .checkpoint_s = checkpoint};
      const StepWithFailures found = with_failures(2e9, 1000, model);
      double best = 0;
      for (model.checkpoint_steps = 1; model.checkpoint_steps < 20'000; ++model.checkpoint_steps)
        best = std::max(best, with_failures(2e9, 1000, model).goodput);
      EXPECT_GE(found.goodput, best * (1 - 1e-3)) << fmt::format("{} hours, {} s", mtbf, checkpoint);
      EXPECT_LE(found.goodput, best * (1 + 1e-12));
    }
  // Young's rule, where failures are rare: every sqrt(2 x 8 s x 3600 s) = 240 s.
  const auto young = with_failures(2e9, 1000, {.mtbf_hours = 1000, .checkpoint_s = 8});
  EXPECT_NEAR(static_cast<double>(young.checkpoint_steps), 120, 5);
}

TEST(Failures, MayLeaveNothing) {
  EXPECT_EQ(with_failures(2e9, 1000, {}).step_ns, 2e9);
  EXPECT_EQ(with_failures(2e9, 1000, {}).goodput, 1);
  const auto hopeless = with_failures(2e9, 1 << 20, {.mtbf_hours = 0.001, .checkpoint_s = 1});
  EXPECT_EQ(hopeless.goodput, 0);
  EXPECT_TRUE(std::isinf(hopeless.step_ns));
}

}  // namespace
}  // namespace ranvier
