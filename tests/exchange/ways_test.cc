// Other ways than scatter, reduce, gather: all_gather, random places added up in transit, and codes of changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "exchange/gathered_slice.h"
#include "exchange/normal_gradients.h"
#include "ranvier/exchange.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using support::run_ranks;

// One encoding and one round: at all_gather the sum itself is not encoded again.
TEST(Ways, AnAllGatherSendsTheWholeCodeToEverybodyAndLosesOnce) {
  run_ranks(3, [](Communicator& comm) {
    constexpr std::size_t count = 1 << 14;
    auto bucket = gradients(comm.rank(), count);
    const auto exchange = make_exchange("int8:block=64,by=all_gather", comm);
    const auto before = comm.traffic();
    exchange->start(bucket)->wait();
    EXPECT_EQ(comm.traffic().bytes_sent - before.bytes_sent, 2 * count * 33 / 32);
    EXPECT_EQ(comm.traffic().operations - before.operations, 4U);  // two sent, two received
    const auto exact = exact_sum(3, count);
    for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(bucket[i], exact[i] / 3, 1.02 * 6.0 / 254);
  });
}

// Each rank's values are rounded once, and their sum is not: in transit it would be rounded again.
TEST(Ways, ACastGoesAsToldToo) {
  run_ranks(4, [](Communicator& comm) {
    constexpr std::size_t count = 1 << 14;
    const auto exchange = make_exchange("bf16:by=all_gather", comm);
    std::vector<float> bucket(count, comm.rank() == 0 ? 1 : 0x1p-9F);
    const auto before = comm.traffic().bytes_sent;
    exchange->start(bucket)->wait();
    EXPECT_EQ(comm.traffic().bytes_sent - before, 3 * count * 2);
    EXPECT_EQ(bucket, std::vector<float>(count, (1 + 3 * 0x1p-9F) / 4));
    // Sums beyond the range of f16 are scaled on this way, too.
    bucket.assign(count, 49'984);
    make_exchange("fp16:by=reduce_scatter", comm)->start(bucket)->wait();
    EXPECT_EQ(bucket, std::vector<float>(count, 49'984));
  });
}

TEST(Ways, TheCheaperWayIsTheOneThatTheModelOfTheLinksSays) {
  const LinkModel links{.latency = 50e-6, .message = 1e-6, .byte = 1e-9, .reduce = 0, .crowded = false};
  EXPECT_FALSE(all_gather_is_cheaper(links, 1, 100));
  EXPECT_TRUE(all_gather_is_cheaper(links, 2, 1e9));  // as many bytes in half as many rounds
  // With four ranks 1.5 codes more, for a round and three messages less: 53 us, or 35 kB.
  EXPECT_TRUE(all_gather_is_cheaper(links, 4, 35'000));
  EXPECT_FALSE(all_gather_is_cheaper(links, 4, 36'000));
  EXPECT_FALSE(all_gather_is_cheaper(links, 64, 5000));
}

TEST(Ways, RandomPlacesAreTheSameForAllAndTheirSumIsExact) {
  run_ranks(3, [](Communicator& comm) {
    constexpr std::size_t count = 1000;
    const auto exchange = make_exchange("randk:0.1", comm);
    auto bucket = gradients(comm.rank(), count);
    const auto before = comm.traffic().bytes_sent;
    exchange->start(bucket)->wait();
    EXPECT_LE(comm.traffic().bytes_sent - before, 100 * sizeof(float) * 2);  // no index, and reduced in transit
    const auto exact = exact_sum(3, count);
    std::size_t sent = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (bucket[i] == 0) continue;
      ++sent;
      ASSERT_NEAR(bucket[i], exact[i] / 3, 1e-6);
    }
    EXPECT_EQ(sent, 100U);
    const auto first = bucket;
    exchange->start(bucket)->wait();
    std::size_t same = 0;
    for (std::size_t i = 0; i < count; ++i) same += first[i] != 0 && bucket[i] != 0;
    EXPECT_LT(same, 50U);  // other places at the next step
  });
}

// Constant gradients: EF21's estimates arrive, so what is applied in one step becomes the gradient itself, and not its
// average over many steps.
TEST(Ways, ChangesOfConstantGradientsEndInTheExactAverage) {
  for (const std::string_view spec : {"delta+topk:0.1+int8", "int2:ef=21", "delta+sign"})
    run_ranks(3, [&](Communicator& comm) {
      constexpr std::size_t count = 2000;
      const auto exchange = make_exchange(spec, comm);
      const auto exact = exact_sum(3, count);
      std::vector<float> bucket(count);
      for (int step = 0; step < 80; ++step) {
        std::ranges::copy(gradients(comm.rank(), count), bucket.begin());
        exchange->start(bucket)->wait();
        expect_equal_everywhere(comm, bucket);
      }
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < count; ++i) {
        error += std::pow(static_cast<double>(bucket[i]) - exact[i] / 3, 2);
        norm += std::pow(exact[i] / 3, 2);
      }
      EXPECT_LT(error, 2e-3 * norm) << spec;
      EXPECT_EQ(exchange->state_bytes(), 3 * count * sizeof(float));
    });
}

// What f32 rounds of one huge gradient is more than all others, and would stay in every sum of changes.
TEST(Ways, ChangesAreExactAgainAfterAHugeGradient) {
  for (const std::string_view spec : {"delta+topk:1", "int8:ef=21", "delta+int4:by=all_gather", "delta+randk:1"})
    run_ranks(3, [&](Communicator& comm) {
      constexpr std::size_t count = 2000;
      const auto exchange = make_exchange(spec, comm);
      const auto exact = exact_sum(3, count);
      std::vector<float> bucket(count);
      for (int step = 0; step < 60; ++step) {
        std::ranges::copy(gradients(comm.rank(), count), bucket.begin());
        if (step == 3)
          for (float& value : bucket) value *= 1e9F;
        exchange->start(bucket)->wait();
        expect_equal_everywhere(comm, bucket);
      }
      for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(bucket[i], exact[i] / 3, 5e-3) << spec;
      EXPECT_EQ(exchange->plain_buckets(), 0U) << spec;
    });
}

TEST(Ways, ACheckpointOfChangesGoesOnAsIfNothingHadHappened) {
  run_ranks(2, [](Communicator& comm) {
    constexpr std::size_t count = 3000;
    const std::vector<Tensor> tensors{{.id = 5, .columns = count}};
    const auto one = make_exchange("delta+topk:0.05", comm);
    std::vector<float> a, b;
    for (unsigned step = 0; step < 4; ++step) {
      a = gradients(comm.rank(), count, step);
      one->start({.values = a, .tensors = tensors})->wait();
    }
    const auto kept = one->save({.values = a, .tensors = tensors});
    const auto other = make_exchange("delta+topk:0.05", comm), values = make_exchange("topk:0.05", comm);
    other->restore({.values = a, .tensors = tensors}, kept);
    values->restore({.values = a, .tensors = tensors}, kept);  // its residual is owed there too
    EXPECT_EQ(values->save({.values = a, .tensors = tensors}).size() + 2 * count * sizeof(float) + 56, kept.size());
    a = b = gradients(comm.rank(), count, 4);
    one->start({.values = a, .tensors = tensors})->wait();
    other->start({.values = b, .tensors = tensors})->wait();
    EXPECT_EQ(a, b);
  });
}

}  // namespace
}  // namespace ranvier
