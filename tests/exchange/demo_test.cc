// DeMo: what moves most of each rank's momentum.
#include "ranvier/demo.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "exchange/normal_gradients.h"
#include "ranvier/error.h"
#include "support/cluster.h"

namespace ranvier {
namespace {

using support::run_ranks;

// 96 = 2 x 48 and 10 values of a bias; 70 ends in chunks of 35.
const std::vector<Tensor> demo_tensors{{.id = 1, .rows = 96, .columns = 70}, {.id = 2, .rows = 10}};
constexpr std::size_t demo_values = 96 * 70 + 10;

// With all coefficients and without signs nothing is lost, whatever the momentum: it is sent at once.
TEST(Demo, ThatSendsEverythingIsTheAverage) {
  run_ranks(3, [](Communicator& comm) {
    const auto exchange = make_exchange("demo:4096,sign=0", comm);
    for (unsigned step = 0; step < 3; ++step) {
      auto bucket = gradients(comm.rank(), demo_values, step);
      exchange->start({.values = bucket, .tensors = demo_tensors})->wait();
      const auto exact = exact_sum(3, demo_values, step);
      for (std::size_t i = 0; i < demo_values; ++i)
        ASSERT_NEAR(bucket[i], exact[i] / 3, 1e-4) << i << " in step " << step;
      expect_equal_everywhere(comm, bucket);
    }
  });
}

// One cosine of a matrix of 64 x 64 is one coefficient, and so is found whole with k = 1.
TEST(Demo, FindsTheCosineOfAChunkAndTakesItFromMomentum) {
  const std::vector<Tensor> square{{.id = 1, .rows = 64, .columns = 64}};
  const Demo demo({.kept = 1, .chunk = 64, .decay = 0.5, .sign = false}, square);
  EXPECT_EQ(demo.code_bytes(), 1U + 6);
  std::vector<float> values(4096), momentum(4096), back(4096);
  for (std::size_t i = 0; i < 64; ++i)
    for (std::size_t j = 0; j < 64; ++j)
      values[i * 64 + j] = static_cast<float>(std::cos(std::numbers::pi / 64 * (static_cast<double>(i) + 0.5) * 3) *
                                              std::cos(std::numbers::pi / 64 * (static_cast<double>(j) + 0.5) * 5));
  std::vector<std::byte> code(demo.code_bytes());
  demo.encode(values, momentum, code);
  ASSERT_TRUE(demo.decode(code, back));
  for (std::size_t i = 0; i < 4096; ++i) {
    ASSERT_NEAR(back[i], values[i], 1e-5);
    ASSERT_NEAR(momentum[i], 0, 1e-5);
  }
}

// Two values that no chunk of one joins: the larger is sent, the other one waits and decays.
TEST(Demo, WhatIsNotSentStaysAndDecays) {
  const std::vector<Tensor> vector{{.id = 1, .rows = 1, .columns = 2}};
  const Demo demo({.kept = 1, .chunk = 1, .decay = 0.5, .sign = false}, vector);
  std::vector<float> momentum(2), back(2);
  std::vector<std::byte> code(demo.code_bytes());
  demo.encode(std::vector<float>{3, 2}, momentum, code);
  ASSERT_TRUE(demo.decode(code, back));
  EXPECT_EQ(back, (std::vector<float>{3, 2}));  // a chunk each
  const Demo joined({.kept = 1, .chunk = 2, .decay = 0.5, .sign = false}, vector);
  code.resize(joined.code_bytes());
  momentum = {0, 0};
  joined.encode(std::vector<float>{3, 1}, momentum, code);  // coefficients 4 and 2 over sqrt(2)
  ASSERT_TRUE(joined.decode(code, back));
  EXPECT_NEAR(back[0], 2, 1e-6);
  EXPECT_NEAR(back[1], 2, 1e-6);
  EXPECT_NEAR(momentum[0], 1, 1e-6);
  EXPECT_NEAR(momentum[1], -1, 1e-6);
  joined.encode(std::vector<float>{0, 0}, momentum, code);
  ASSERT_TRUE(joined.decode(code, back));
  EXPECT_NEAR(back[0], 0.5, 1e-6);
  EXPECT_NEAR(back[1], -0.5, 1e-6);
}

// The average is over the ranks that sent a coefficient, and not over all; then signs.
TEST(Demo, AveragesOverThoseWhoSent) {
  const std::vector<Tensor> vector{{.id = 1, .rows = 1, .columns = 2}};
  const std::vector<std::vector<float>> of{{4, 4}, {1, -1}, {2, 2}};
  std::vector<float> momentum(2), back(2);
  for (const bool sign : {false, true}) {
    const Demo demo({.kept = 1, .chunk = 2, .decay = 0.5, .sign = sign}, vector);
    std::vector<std::byte> codes;
    for (const auto& values : of) {
      std::vector<std::byte> code(demo.code_bytes());
      momentum = {0, 0};
      demo.encode(values, momentum, code);
      codes.insert(codes.end(), code.begin(), code.end());
    }
    ASSERT_TRUE(demo.decode(codes, back));
    EXPECT_NEAR(back[0], sign ? 1 : 4, 1e-5);  // (4 + 2) / 2 of the first coefficient, 1 of the second
    EXPECT_NEAR(back[1], sign ? 1 : 2, 1e-5);
  }
}

TEST(Demo, GivesSignsToARankAlone) {
  for (const std::string_view spec : {"demo:2,decay=0", "demo:2"})
    run_ranks(1, [&](Communicator& comm) {
      std::vector<float> bucket = gradients(comm.rank(), 1000);
      make_exchange(spec, comm)->start(bucket)->wait();
      for (const float each : bucket) ASSERT_TRUE(each == 0 || std::abs(each) == 1) << spec << ": " << each;
    });
}

TEST(Demo, GivesSignsAndSendsFewBytes) {
  run_ranks(2, [](Communicator& comm) {
    const auto exchange = make_exchange("demo:4", comm);
    EXPECT_EQ(exchange->momentum(), 0.999);
    auto bucket = gradients(comm.rank(), demo_values);
    const auto before = comm.traffic().bytes_sent;
    exchange->start({.values = bucket, .tensors = demo_tensors})->wait();
    EXPECT_EQ(comm.traffic().bytes_sent - before, 1U + (4 + 1) * 4 * 6);  // four chunks of 48 x 35, and the bias
    for (const float value : bucket) ASSERT_TRUE(value == 1 || value == -1) << value;
    expect_equal_everywhere(comm, bucket);
  });
}

TEST(Demo, WhatIsNotFiniteGoesPlainAndMomentumIsAsBefore) {
  run_ranks(3, [](Communicator& comm) {
    const DemoOptions options{.kept = 4, .decay = 1, .sign = false};  // as before to rounding
    const auto exchange = demo_exchange(comm, "demo", options), twin = demo_exchange(comm, "demo", options);
    for (unsigned step = 0; step < 4; ++step) {
      auto bucket = gradients(comm.rank(), demo_values, step), other = bucket;
      exchange->start({.values = bucket, .tensors = demo_tensors})->wait();
      twin->start({.values = other, .tensors = demo_tensors})->wait();
      for (std::size_t i = 0; i < demo_values; ++i) ASSERT_NEAR(bucket[i], other[i], 1e-4) << i << " in step " << step;
      if (step != 1) continue;
      bucket = gradients(comm.rank(), demo_values, 9);
      if (comm.rank() == 1) bucket[100] = NAN;
      exchange->start({.values = bucket, .tensors = demo_tensors})->wait();
      EXPECT_TRUE(std::isnan(bucket[100]));
      EXPECT_NEAR(bucket[99], exact_sum(3, demo_values, 9)[99] / 3, 1e-5);
    }
    EXPECT_EQ(exchange->plain_buckets(), 1U);
  });
}

TEST(Demo, RefusesCodesThatNoEncoderWrites) {
  const std::vector<Tensor> vector{{.id = 1, .rows = 1, .columns = 8}};
  const Demo demo({.kept = 1}, vector);
  std::vector<float> values(8);
  std::vector<std::byte> code(demo.code_bytes(), std::byte{1});  // the index 257 of 8
  EXPECT_THROW(demo.decode(code, values), Error);
  code.pop_back();
  EXPECT_THROW(demo.decode(code, values), Error);
  EXPECT_THROW(demo.decode({}, values), Error);
}

}  // namespace
}  // namespace ranvier
