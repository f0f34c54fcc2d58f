// Averages of two with real messages, each worker at its own pace.
#include "ranvier/peer_average.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "ranvier/error.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using support::ClusterOptions;
using support::run_ranks;
using namespace std::chrono_literals;

TEST(PeerAverage, KeepsTheSumOfAllReplicasAndGivesEachSampleOnce) {
  for (const Rank world : {1, 2, 3, 5}) {
    constexpr std::size_t size = 40;
    std::mutex mutex;
    std::multiset<std::uint64_t> samples;
    std::vector<std::vector<float>> held(static_cast<std::size_t>(world));
    std::atomic<Rank> begun = 0;
    run_ranks(world,
              [&](Communicator& comm) {
                // Powers of two, so that means are exact.
                std::vector<float> x(size, static_cast<float>(1U << static_cast<unsigned>(comm.rank() + 10)));
                PeerAverage peers(comm, x, 5, 1);
                bool has_begun = false;
                for (const std::uint64_t stop : {100U, 205U}) {
                  for (;;) {
                    const auto start = peers.begin(stop, 2);
                    if (start.count == 0) break;
                    peers.read(x);
                    {
                      const std::lock_guard lock(mutex);
                      for (std::uint64_t n = 0; n < start.count; ++n) samples.insert(start.first + n);
                    }
                    // Else those who have a core might take them all.
                    if (!std::exchange(has_begun, true)) ++begun;
                    while (begun < world) std::this_thread::sleep_for(300us);
                    peers.update(x, start.count, [] {});
                  }
                  comm.barrier();
                }
                peers.read(x);
                if (comm.rank() % 2 == 1 || (world > 1 && comm.rank() + 1 == world)) {
                  EXPECT_GT(peers.averages(), 0U) << comm.rank() << " of " << world << ", which asks others";
                }
                held[static_cast<std::size_t>(comm.rank())] = x;
                peers.leave();
              },
              {.way = "shm"});
    std::set<std::uint64_t> expected;
    for (std::uint64_t sample = 5; sample < 205; ++sample) expected.insert(sample);
    EXPECT_EQ(std::set(samples.begin(), samples.end()), expected);
    EXPECT_EQ(samples.size(), expected.size()) << "a sample was given twice";
    double sum = 0;
    for (const auto& x : held) sum += x.front();
    EXPECT_NEAR(sum, 1024.0 * ((1 << world) - 1), 0.1) << world;
  }
}

// Whatever codes lose, it is nobody's; and who asks and is asked again and again comes to the mean of all, also where
// replicas have begun apart, as those that resume do.
TEST(PeerAverage, CodesKeepTheSumAndBringReplicasTogether) {
  for (const char* codec : {"int8", "hadamard+int4", "eden:2"})
    for (const Rank world : {2, 4}) {
      constexpr std::size_t size = 500;
      std::vector<std::vector<float>> held(static_cast<std::size_t>(world));
      run_ranks(world, [&](Communicator& comm) {
        std::vector<float> x(size);
        for (std::size_t i = 0; i < size; ++i)
          x[i] = static_cast<float>((i * 7919 + static_cast<std::size_t>(comm.rank()) * 104729) % 1000) / 500 - 1;
        std::vector<float> mean = x;
        comm.all_reduce(mean, {.op = ReduceOp::average});
        PeerAverage peers(comm, x, 0, 3, codec);
        for (int step = 0; step < 60; ++step) {
          peers.start();
          peers.update(x, 1, [] {});
          if (step % 6 == 0) comm.barrier();  // else one may have had all of its averages before another begins
        }
        comm.barrier();
        peers.read(x);
        std::vector<float> after = x;
        comm.all_reduce(after, {.op = ReduceOp::average});
        double apart = 0, spread = 0;
        for (std::size_t i = 0; i < size; ++i) {
          ASSERT_NEAR(after[i], mean[i], 1e-4) << codec;
          apart += (x[i] - mean[i]) * (x[i] - mean[i]);
          spread += mean[i] * mean[i];
        }
        EXPECT_LT(apart, 0.01 * spread + 0.01) << codec << ", " << world;
        EXPECT_EQ(peers.plain_messages(), 0U);
        EXPECT_LE(peers.state_bytes(), (1 + 2 * static_cast<std::size_t>(world) / 2) * size * sizeof(float));
        peers.leave();
      });
    }
}

TEST(PeerAverage, WhatHasNoCodeGoesPlainly) {
  run_ranks(2, [](Communicator& comm) {
    std::vector<float> x(100, comm.rank() == 0 ? std::numeric_limits<float>::infinity() : 1.0F);
    PeerAverage peers(comm, x, 0, 1, "int8");
    peers.start();
    peers.update(x, 1, [] {});
    comm.barrier();
    peers.read(x);
    for (const float each : x) EXPECT_FALSE(std::isfinite(each)) << "never turned into finite numbers";
    peers.leave();
  });
}

TEST(PeerAverage, CodecsByWhichPeersWouldNotComeTogetherAreRefused) {
  run_ranks(2, [](Communicator& comm) {
    const std::vector<float> x(100, 1);
    EXPECT_THROW(PeerAverage(comm, x, 0, 1, "topk:0.01"), Error);
    EXPECT_THROW(PeerAverage(comm, x, 0, 1, comm.rank() == 0 ? "int8" : "int4"), Error);
  });
}

TEST(PeerAverage, OneWorkerTakesPlainStepsBitByBit) {
  run_ranks(1, [](Communicator& comm) {
    std::vector<float> x{0.1F};
    float expected = 0.1F;
    PeerAverage peers(comm, x, 0, 1);
    for (int step = 0; step < 20; ++step) {
      EXPECT_EQ(peers.begin(100, 1).first, static_cast<std::uint64_t>(step));
      peers.read(x);
      const float gradient = x[0] - 1;
      peers.update(x, 1, [&] { x[0] -= 0.1F * gradient; });
      expected -= 0.1F * (expected - 1);
      ASSERT_EQ(x[0], expected);
    }
    peers.leave();
  });
}

// Each step pulls towards 0, 1, 2 or 3; all together come to the middle. By steps of its own, since which samples a
// rank gets is the scheduler's choice, and one that got those of 3 alone would end there; and never many steps apart,
// since the mean with one that has not begun throws back one whose rate is nearly 0.
TEST(PeerAverage, FindsTheMinimumOfTheSumOfAllLosses) {
  run_ranks(4,
            [](Communicator& comm) {
              std::vector<float> x(8, 9.0F);
              PeerAverage peers(comm, x, 0, 2);
              for (int step = 0; step < 500; ++step) {
                if (step % 10 == 0) comm.barrier();
                peers.begin(1'000'000, 1);
                peers.read(x);
                const float gradient = x[0] - static_cast<float>((step + comm.rank()) % 4);
                const float rate = 0.05F * (1 - static_cast<float>(step) / 500);
                peers.update(x, 1, [&] {
                  for (float& each : x) each -= rate * gradient;
                });
              }
              comm.barrier();
              EXPECT_NEAR(x[0], 1.5, 0.3);
              peers.leave();
            },
            {.way = "shm"});
}

TEST(PeerAverage, WaitsForStepsThatTakeLongerThanATimeout) {
  ClusterOptions options{.way = "shm"};
  options.communicator.timeout = 2s;
  run_ranks(
      2,
      [&](Communicator& comm) {
        std::vector<float> x(8, 0.0F);
        PeerAverage peers(comm, x, 0, 3);
        for (int step = 0; peers.begin(4, 1).count > 0; ++step) {
          peers.read(x);
          if (step == 0) std::this_thread::sleep_for(4500ms);
          peers.update(x, 1, [] {});
        }
        comm.barrier({.timeout = 60s});
        peers.leave();
      },
      options);
}

TEST(PeerAverage, NobodyWaitsForOneThatComputes) {
  for (const Rank slow : {0, 2}) {
    std::atomic<int> others{0};
    run_ranks(4,
              [&](Communicator& comm) {
                std::vector<float> x(8, 0.0F);
                PeerAverage peers(comm, x, 0, 3);
                std::uint64_t steps = 0;
                for (;;) {
                  const auto start = peers.begin(200, 1);
                  if (start.count == 0) break;
                  peers.read(x);
                  // Its only step lasts as long as most of those of the others, who ask it meanwhile.
                  if (comm.rank() == slow)
                    while (others < 150) std::this_thread::sleep_for(1ms);
                  peers.update(x, 1, [] {});
                  if (comm.rank() != slow) ++others;
                  ++steps;
                }
                comm.barrier();
                if (comm.rank() % 2 == 1) {
                  EXPECT_EQ(peers.averages(), steps) << comm.rank();
                }
                peers.leave();
              },
              {.way = "shm"});
    EXPECT_GE(others, 150);
  }
}

// Parameters take 0.1 s each way. Who is asked computes on meanwhile: its samples come from rank 0, which sends means.
TEST(PeerAverage, NobodyWaitsForSamplesWhileParametersAreOnTheirWay) {
  ClusterOptions slow{.way = "tcp"};
  slow.communicator.link_bytes_per_second = 4e6;
  std::array<std::atomic<int>, 4> steps{};
  run_ranks(
      4,
      [&](Communicator& comm) {
        std::vector<float> x(100'000, 1.0F);
        PeerAverage peers(comm, x, 0, 3);
        for (;;) {
          const auto start = peers.begin(1000, 1);
          if (start.count == 0) break;
          peers.read(x);
          std::this_thread::sleep_for(1ms);
          peers.update(x, 1, [] {});
          ++steps[static_cast<std::size_t>(comm.rank())];
        }
        comm.barrier();
        peers.leave();
      },
      slow);
  for (const std::size_t asks : {1, 3})
    for (const std::size_t is_asked : {0, 2}) EXPECT_GT(steps[is_asked], 3 * steps[asks]) << is_asked << ' ' << asks;
}

}  // namespace
}  // namespace ranvier
