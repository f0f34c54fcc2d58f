// SwitchML: integers with a scale that all ranks share.
#include "ranvier/shared_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "exchange/normal_gradients.h"
#include "ranvier/error.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using support::run_ranks;

// Of four ranks a code has 31 steps to a side of the largest magnitude of all, and each errs by half a step.
TEST(SharedScale, IsWithinHalfAStepAndTakesAByteAValue) {
  run_ranks(4, [](Communicator& comm) {
    constexpr std::size_t count = 1'000'000, block = SharedScale::block;
    const auto exchange = make_exchange("switchml", comm);
    auto bucket = gradients(comm.rank(), count);
    const auto before = comm.traffic().bytes_sent;
    exchange->start(bucket)->wait();
    EXPECT_LT(static_cast<double>(comm.traffic().bytes_sent - before), 1.02 * 1.5 * count);
    expect_equal_everywhere(comm, bucket);
    const auto exact = exact_sum(4, count);
    std::vector<float> largest(count / block + 1);
    for (Rank rank = 0; rank < 4; ++rank) {
      const auto values = gradients(rank, count);
      for (std::size_t i = 0; i < count; ++i) largest[i / block] = std::max(largest[i / block], std::fabs(values[i]));
    }
    double error = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double off = std::fabs(static_cast<double>(bucket[i]) - exact[i] / 4);
      ASSERT_LE(off, static_cast<double>(largest[i / block]) / 31 / 2 * 1.0001) << i;
      error = std::max(error, off);
    }
    EXPECT_GT(error, 0);
  });
}

// 127 is the largest integer of 8 bits: the sum of all ranks' largest codes is not beyond it.
TEST(SharedScale, SumsOfTheLargestCodesFitAByte) {
  const std::vector<float> values{-3, 3, 1, 0}, largest{3};
  for (Rank world = 1; world <= 127; ++world) {
    const SharedScale scale(world);
    std::vector<std::int8_t> codes(4);
    scale.encode(values, largest, codes);
    EXPECT_EQ(codes[0], -codes[1]);
    EXPECT_LE(codes[1] * world, 127);
    EXPECT_GT(codes[1] * (world + 1), 127 - world) << "no step is given away";
    std::vector<float> back(4);
    scale.decode(codes, largest, 1, back);
    EXPECT_FLOAT_EQ(back[0], -3);
    EXPECT_EQ(back[3], 0);
  }
  try {
    SharedScale(128);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("no sum of 128 ranks; use a codec such as int4"));
  }
}

TEST(SharedScale, TheSmallestAndTheLargestScalesGiveNumbers) {
  for (const float size : {0.0F, std::numeric_limits<float>::denorm_min(), 1e-38F, 0x1p50F}) {
    const std::vector<float> values{size, -size, size / 2};
    std::vector<float> largest(1), back(3, NAN);
    ASSERT_TRUE(SharedScale::measure(values, largest));
    std::vector<std::int8_t> codes(3);
    SharedScale(4).encode(values, largest, codes);
    SharedScale(4).decode(codes, largest, 1, back);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(back[i], values[i], std::max(size / 62, 1e-38F)) << size;
  }
  std::vector<float> largest(2);
  std::vector<float> values(1500, 1);
  values[3] = NAN;
  EXPECT_FALSE(SharedScale::measure(values, largest));
  EXPECT_EQ(largest[1], INFINITY);
}

}  // namespace
}  // namespace ranvier
