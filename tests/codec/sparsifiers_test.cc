#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "codec/codes.h"
#include "codec/layers.h"
#include "ranvier/codec.h"

namespace ranvier::testing {
namespace {

std::vector<std::size_t> sent_by(const std::string& spec, const Values& values, std::uint64_t seed = 7) {
  const auto codec = make_codec(spec);
  const Values back = decoded(*codec, encoded(*codec, values, seed), values.size());
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < back.size(); ++i)
    if (back[i] != 0) {
      EXPECT_EQ(back[i], values[i]);
      places.push_back(i);
    }
  return places;
}

TEST(TopK, SendsExactlyTheLargest) {
  const Values values = values_of(Kind::normal, 3000);
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) { return std::fabs(values[a]) > std::fabs(values[b]); });
  for (const std::size_t k : {1, 3, 30, 1500, 3000}) {
    std::vector<std::size_t> largest(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
    std::ranges::sort(largest);
    EXPECT_EQ(sent_by("topk:" + std::to_string(static_cast<double>(k) / 3000), values), largest);
  }
}

TEST(TopK, SendsTheFirstOfEqualOnes) {
  EXPECT_EQ(sent_by("topk:0.5", {2, -2, 2, 2, 2, 5}), (std::vector<std::size_t>{0, 1, 5}));
}

TEST(TopK, SendsOneValueAtLeast) { EXPECT_EQ(sent_by("topk:0.000001", {1, 3, 2}), (std::vector<std::size_t>{1})); }

// What is not told of a value is that it is zero, so that zeros need no telling: of embeddings few rows have a
// gradient.
TEST(TopK, SendsNoZeros) {
  Values values(1000);
  values[3] = 1, values[500] = -0x1p-149F, values[501] = 0x1p-149F, values[999] = -2;
  for (const std::string spec : {"topk:0.01", "topk:0.01,select=sampled", "sidco:0.01", "dgc:0.01"}) {
    const auto codec = make_codec(spec);
    const auto code = encoded(*codec, values, 7);
    EXPECT_EQ(decoded(*codec, code, values.size()), values) << spec;
    EXPECT_LT(code.size(), std::size_t{8} + 4 * 4 + 16) << spec;
    EXPECT_EQ(encoded(*codec, Values(1000), 7).size(), 8U) << spec;
  }
  const auto signs = make_codec("topk:0.01+sign");
  EXPECT_EQ(decoded(*signs, encoded(*signs, Values(1000), 7), 1000), Values(1000)) << "signs know no zero";
}

TEST(TopK, AThresholdFromASampleFindsAboutAsMany) {
  for (const Kind kind : {Kind::normal, Kind::skewed}) {
    const Values values = values_of(kind, 100'000);
    for (const double ratio : {0.01, 0.05}) {
      const auto found =
          static_cast<double>(sent_by("topk:" + std::to_string(ratio) + ",select=sampled", values).size());
      EXPECT_GE(found, 0.79 * ratio * 100'000);
      EXPECT_LE(found, 1.26 * ratio * 100'000);
    }
  }
}

TEST(Layers, EveryTensorHasItsShareByThePowerOfItsSize) {
  const std::vector<TensorPiece> pieces{{.size = 10'000, .of = 10'000}, {.size = 100, .of = 100}, {.size = 3, .of = 3}};
  // 1 : the same ratio; 1/2: 100 + 10 + 1.7 roots; 0: as many of each, and of the last no more than it has.
  EXPECT_EQ(shares_of_tensors(1010, pieces, 1, 1)[0], 1000U);
  const auto by_root = shares_of_tensors(111, pieces, 0.5, 1);
  EXPECT_NEAR(static_cast<double>(by_root[0]), 111 * 100 / 111.73, 1);
  EXPECT_NEAR(static_cast<double>(by_root[1]), 111 * 10 / 111.73, 1);
  EXPECT_EQ(shares_of_tensors(103, pieces, 0, 1), (std::vector<std::size_t>{50, 50, 3}));
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    for (const double exponent : {0.0, 0.3, 1.0})
      for (const std::size_t k : {1, 2, 57, 10'103}) {
        const auto shares = shares_of_tensors(k, pieces, exponent, seed);
        EXPECT_LE(shares[0] + shares[1] + shares[2], k);
        EXPECT_GE(shares[0] + shares[1] + shares[2] + 1, k);  // but for the rounding of doubles, k
      }
}

// Of a hundredth of three values nothing would ever be sent if shares were rounded down.
TEST(Layers, WhatIsBelowOneCountsFromTimeToTime) {
  const std::vector<TensorPiece> pieces{{.size = 10'000, .of = 10'000}, {.size = 3, .of = 3}};
  std::size_t of_small = 0;
  for (std::uint64_t seed = 0; seed < 10'000; ++seed) of_small += shares_of_tensors(100, pieces, 1, seed)[1];
  EXPECT_NEAR(static_cast<double>(of_small), 300, 5 * std::sqrt(300.0));  // false alarm: below 1e-6
}

TEST(Layers, ChooseInEachTensorAndNotAmongAll) {
  Values values = values_of(Kind::normal, 1100);
  for (std::size_t i = 1000; i < 1100; ++i) values[i] *= 1e-3F;  // all below the others
  const std::vector<TensorPiece> pieces{{.size = 1000, .of = 1000}, {.size = 100, .of = 100}};
  for (const std::string spec : {"topk:0.1,layers=1", "dgc:0.1,layers=1"}) {
    const auto codec = make_codec(spec);
    EXPECT_TRUE(codec->chooses_by_tensor());
    Code code(codec->max_bytes(values.size()));
    code.resize(codec->encode(values, {}, code, {.seed = 3, .pieces = pieces}));
    const Values back = decoded(*codec, code, values.size());
    const auto sent = [&](std::size_t begin, std::size_t end) {
      return std::count_if(back.begin() + static_cast<std::ptrdiff_t>(begin),
                           back.begin() + static_cast<std::ptrdiff_t>(end), [](float value) { return value != 0; });
    };
    EXPECT_EQ(sent(0, 1000), 100) << spec;
    EXPECT_EQ(sent(1000, 1100), 10) << spec;
  }
  for (const std::size_t place : sent_by("topk:0.1", values)) EXPECT_LT(place, 1000U);
}

TEST(Layers, PiecesOfAPartKnowTheirTensors) {
  const std::vector<TensorPiece> pieces{{.size = 10, .of = 10}, {.size = 20, .of = 20}, {.size = 5, .of = 5}};
  const auto inside = cut(pieces, 7, 24);
  ASSERT_EQ(inside.size(), 3U);
  EXPECT_EQ(inside[0].size, 3U);
  EXPECT_EQ(inside[0].of, 10U);
  EXPECT_EQ(inside[1].size, 20U);
  EXPECT_EQ(inside[2].size, 1U);
  EXPECT_EQ(inside[2].of, 5U);
  EXPECT_TRUE(cut({}, 7, 24).empty());
}

TEST(Sidco, FindsAboutAsManyWithoutSorting) {
  for (const Kind kind : {Kind::normal, Kind::skewed}) {
    const Values values = values_of(kind, 100'000);
    for (const double ratio : {0.1, 0.01, 0.001}) {
      const auto found = static_cast<double>(sent_by("sidco:" + std::to_string(ratio), values).size());
      EXPECT_GE(found, 0.5 * ratio * 100'000) << ratio;
      EXPECT_LE(found, 2 * ratio * 100'000 + 1) << ratio;
    }
  }
  EXPECT_EQ(sent_by("sidco:0.1", values_of(Kind::equal, 1000)).size(), 100U);
}

TEST(Threshold, SendsWhatReachesIt) {
  EXPECT_EQ(sent_by("threshold:0.5", {0.4F, -0.5F, 0.6F, 0}), (std::vector<std::size_t>{1, 2}));
  EXPECT_TRUE(sent_by("threshold:10", {1, 2}).empty());
}

TEST(RandomK, ChoosesOthersEachTimeAndSendsNoIndex) {
  const Values values = values_of(Kind::equal, 1000);
  EXPECT_EQ(sent_by("randk:0.05", values, 1).size(), 50U);
  EXPECT_NE(sent_by("randk:0.05", values, 1), sent_by("randk:0.05", values, 2));
  EXPECT_EQ(encoded(*make_codec("randk:0.05"), values).size(), 12U + 50 * 4);
}

TEST(SparseCodes, TakeAboutNineBitsAnIndexAtOnePercent) {
  // The entropy of a set of 1 % is 8.1 bits an index, and Golomb-Rice needs 8.4.
  const Values values = values_of(Kind::normal, 100'000);
  const double bits = 8 * static_cast<double>(encoded(*make_codec("topk:0.01+int8"), values).size()) / 1000;
  EXPECT_NEAR(bits, 8.4 + 8.25, 0.5);
}

// Lin et al.: with momentum m a value that is sent after n steps of gradient 1 carries the sum of the corrected
// momentum.
TEST(Dgc, AccumulatesCorrectedMomentumAndForgetsItWhereItWasSent) {
  const auto codec = make_codec("dgc:0.5,momentum=0.5");
  ASSERT_EQ(codec->state_parts(), 2U);
  EXPECT_EQ(codec->momentum(), 0.5);
  Values residual(2), velocity(2);
  const auto step = [&](const Values& gradient) {
    return decoded(*codec, encoded(*codec, gradient, 1, {.residual = residual, .velocity = velocity}), 2);
  };
  EXPECT_EQ(step({10, 1}), (Values{10, 0}));
  EXPECT_EQ(velocity, (Values{0, 1}));
  EXPECT_EQ(residual, (Values{0, 1}));
  EXPECT_EQ(step({5, 1}), (Values{5, 0}));
  EXPECT_EQ(velocity, (Values{0, 1.5}));
  EXPECT_EQ(residual, (Values{0, 2.5}));
  EXPECT_EQ(step({1, 1}), (Values{0, 4.25}));  // 2.5 + (0.5 * 1.5 + 1)
  EXPECT_EQ(velocity, (Values{1, 0}));
  EXPECT_EQ(residual, (Values{1, 0}));
}

// Residual and momentum together are beyond 2^50: the gradients go plain, and must not be counted here as well.
TEST(Dgc, KeepsNoGradientThatHadNoCodeAndHasOneAgainWhenMomentumHasDecayed) {
  const auto codec = make_codec("dgc:0.5+int4");
  const Values owed{0x1p49F, 1};
  Values residual = owed, velocity{0x1p50F, 1};
  const auto code_of = [&](const Values& gradient) {
    return encoded(*codec, gradient, 1, {.residual = residual, .velocity = velocity});
  };
  EXPECT_TRUE(code_of({0x1p48F, 0.5F}).empty());
  EXPECT_NEAR(velocity[0], 0.9 * 0x1p50, 0x1p50 * 1e-6);
  EXPECT_NEAR(velocity[1], 0.9, 1e-6);
  for (int step = 2; step < 7; ++step) EXPECT_TRUE(code_of({1, 1}).empty()) << step;
  EXPECT_NEAR(residual[0], owed[0], 0x1p49 * 1e-6);
  EXPECT_NEAR(residual[1], owed[1], 1e-5);
  EXPECT_NEAR(velocity[1], std::pow(0.9, 6), 1e-6);
  const Values sent = decoded(*codec, code_of({1, 1}), 2);  // 0.9^7 2^50 + 2^49 is below 2^50
  EXPECT_NEAR(sent[0], (std::pow(0.9, 7) + 0.5) * 0x1p50, 0x1p50 * 0.1);
}

TEST(Dgc, WarmsUp) {
  const auto codec = make_codec("dgc:0.001,warmup=8");
  const Values values = values_of(Kind::normal, 100'000);
  std::vector<std::size_t> shares;
  for (const std::uint64_t step : {0, 2, 4, 6, 8}) {
    Code code(codec->max_bytes(values.size()));
    code.resize(codec->encode(values, {}, code, {.seed = 1, .step = step}));
    const Values back = decoded(*codec, code, values.size());
    shares.push_back(static_cast<std::size_t>(std::ranges::count_if(back, [](float value) { return value != 0; })));
  }
  const double expected[] = {25000, 6250, 1562, 391, 100};
  for (std::size_t i = 0; i < shares.size(); ++i) {
    EXPECT_GE(static_cast<double>(shares[i]), 0.75 * expected[i]);
    EXPECT_LE(static_cast<double>(shares[i]), 1.3 * expected[i]);
  }
}

TEST(Dgc, SumsAreSparsifiedWithoutMomentum) {
  const auto sums = make_codec("dgc:0.001")->for_sums();
  ASSERT_NE(sums, nullptr);
  EXPECT_EQ(sums->state_parts(), 1U);
  EXPECT_EQ(sums->momentum(), 0);
  EXPECT_EQ(make_codec("topk:0.1")->for_sums(), nullptr);
}

}  // namespace
}  // namespace ranvier::testing
