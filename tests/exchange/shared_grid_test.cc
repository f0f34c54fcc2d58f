// THC: integers on a grid that all ranks share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "exchange/normal_gradients.h"
#include "ranvier/error.h"
#include "ranvier/shared_grid.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

// Norms are remembered by tensor: each step's gradients lie elsewhere.
std::vector<Tensor> one_tensor(std::size_t count) { return {{.id = 1, .columns = count}}; }

using support::run_ranks;

// 8 bits for three ranks are 86 levels; the first step, before norms are known, goes as f32.
TEST(SharedGrid, IsExactFirstAndThenWithinItsError) {
  run_ranks(3, [](Communicator& comm) {
    constexpr std::size_t count = 5000;
    const auto exchange = make_exchange("thc:8", comm);
    for (unsigned step = 0; step < 4; ++step) {
      auto bucket = gradients(comm.rank(), count, step);
      const auto before = comm.traffic().bytes_sent;
      exchange->start({.values = bucket, .tensors = one_tensor(count)})->wait();
      const auto sent = static_cast<double>(comm.traffic().bytes_sent - before);
      const auto exact = exact_sum(3, count, step);
      double error = 0, norm = 0;
      for (std::size_t i = 0; i < count; ++i) {
        error += std::pow(static_cast<double>(bucket[i]) - exact[i] / 3, 2);
        norm += std::pow(exact[i] / 3, 2);
      }
      if (step == 0) {
        EXPECT_LT(error, 1e-10 * norm);
      } else {
        EXPECT_LT(error, 0.01 * norm) << step;
        EXPECT_GT(error, 0);
        EXPECT_LT(sent, 2.2 * count);  // a byte a value there and back, and the norms
      }
      expect_equal_everywhere(comm, bucket);
    }
  });
}

// Norms are in checkpoints: the first step behind one is coded as it would have been.
TEST(SharedGrid, GoesOnFromACheckpointBitForBit) {
  run_ranks(3, [](Communicator& comm) {
    constexpr std::size_t count = 5000;
    const auto step = [&](Exchange& exchange, unsigned number) {
      auto bucket = gradients(comm.rank(), count, number);
      exchange.start({.values = bucket, .tensors = one_tensor(count)})->wait();
      return bucket;
    };
    const auto whole = make_exchange("thc:8", comm);
    for (unsigned number = 0; number < 3; ++number) step(*whole, number);
    std::vector<float> bucket(count);
    const auto kept = whole->save({.values = bucket, .tensors = one_tensor(count)});
    const auto resumed = make_exchange("thc:8", comm);
    resumed->restore({.values = bucket, .tensors = one_tensor(count)}, kept);
    for (unsigned number = 3; number < 6; ++number) {
      const auto expected = step(*whole, number);
      const auto before = comm.traffic().bytes_sent;
      EXPECT_EQ(step(*resumed, number), expected) << number;
      EXPECT_LT(static_cast<double>(comm.traffic().bytes_sent - before), 2.2 * count) << number;
    }
    EXPECT_EQ(resumed->save({.values = bucket, .tensors = one_tensor(count)}),
              whole->save({.values = bucket, .tensors = one_tensor(count)}));
  });
}

TEST(SharedGrid, SumsOfTheLargestCodesFitTheirFields) {
  for (const unsigned bits : {4U, 8U})
    for (Rank world = 1; world <= 256; ++world) {
      const std::uint32_t levels = SharedGrid::levels_for(bits, world);
      EXPECT_LT(static_cast<std::uint32_t>(world) * (levels - 1), 1U << bits);
    }
  EXPECT_NEAR(SharedGrid::half_range(4), 1.494, 1e-3);
  EXPECT_GT(SharedGrid::half_range(6), 1.494);
  EXPECT_LT(SharedGrid::half_range(6), 2.051);
}

TEST(SharedGrid, TooManyRanksForAFieldAreToldWhatToWrite) {
  run_ranks(16, [](Communicator& comm) {
    try {
      make_exchange("thc:4", comm);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), testing::HasSubstr("no sum of 16 ranks; write thc:8"));
    }
  });
}

TEST(SharedGrid, WhatIsNotFiniteGoesPlainAndTheRestIsAsBefore) {
  for (const unsigned bad : {0U, 2U})  // the first step goes as floats anyway, and is counted then
    run_ranks(3, [&](Communicator& comm) {
      constexpr std::size_t count = 3000;
      const auto exchange = make_exchange("thc:8", comm);
      for (unsigned step = 0; step < 5; ++step) {
        auto bucket = gradients(comm.rank(), count, step);
        if (step == bad && comm.rank() == 1) bucket[17] = NAN;
        exchange->start({.values = bucket, .tensors = one_tensor(count)})->wait();
        const auto exact = exact_sum(3, count, step);
        for (std::size_t i = 0; i < count; ++i) {
          if (step == bad && i == 17)
            EXPECT_TRUE(std::isnan(bucket[i]));
          else
            ASSERT_NEAR(bucket[i], exact[i] / 3, step == bad ? 1e-5 : 0.5) << i << " in step " << step;
        }
      }
      EXPECT_EQ(exchange->plain_buckets(), 1U);
    });
}

}  // namespace
}  // namespace ranvier
