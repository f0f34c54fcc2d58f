// What a codec holds back belongs to tensors.
#include "exchange/residuals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "ranvier/error.h"

namespace ranvier {
namespace {

TEST(Residuals, FollowTheirTensorsIntoOtherBuckets) {
  Residuals residuals(1, "int4", 2);
  std::vector<float> memory(30);
  const Tensor a{.id = 1, .columns = 10}, b{.id = 2, .rows = 2, .columns = 10};
  const std::vector<Tensor> both{a, b}, first{a}, second{b}, swapped{b, a};
  {
    const auto state = residuals.of({.values = memory, .tensors = both});
    for (std::size_t i = 0; i < 30; ++i) state->residual[i] = static_cast<float>(i);
    EXPECT_EQ(residuals.of({.values = memory, .tensors = both}), state);
  }
  EXPECT_EQ(residuals.of({.values = std::span(memory).first(20), .tensors = second})->residual[3], 13);
  EXPECT_EQ(residuals.of({.values = std::span(memory).first(10), .tensors = first})->residual[3], 3);
  const auto state = residuals.of({.values = memory, .tensors = swapped});
  EXPECT_EQ(state->residual[0], 10);
  EXPECT_EQ(state->residual[20], 0);
  EXPECT_EQ(residuals.bytes(), 30 * sizeof(float));
}

TEST(Residuals, FollowTheirTensorsBackIntoABucketOfBefore) {
  Residuals residuals(1, "int4", 2);
  std::vector<float> memory(20);
  const Tensor a{.id = 1, .columns = 10}, b{.id = 2, .columns = 10}, c{.id = 3, .columns = 10};
  const std::vector<Tensor> before{a, b}, meanwhile{b, c};  // a was in none
  residuals.of({.values = memory, .tensors = before})->residual.assign(20, 1);
  residuals.of({.values = memory, .tensors = meanwhile})->residual.assign(20, 5);
  const auto state = residuals.of({.values = memory, .tensors = before});
  EXPECT_EQ(state->residual[3], 1);
  EXPECT_EQ(state->residual[13], 5);
  EXPECT_EQ(residuals.of({.values = memory, .tensors = before}), state);
}

TEST(Residuals, WithoutATensorsNameBelongToMemoryOfTheSameAddressAndSize) {
  Residuals residuals(1, "int4", 2);
  std::vector<float> memory(30);
  residuals.of({.values = memory})->residual[3] = 5;
  EXPECT_EQ(residuals.of({.values = memory})->residual[3], 5);
  EXPECT_EQ(residuals.of({.values = std::span(memory).first(20)})->residual[3], 0);
  EXPECT_EQ(residuals.bytes(), 20 * sizeof(float));
}

TEST(Residuals, RefuseATensorOfAnotherSizeAndBucketsThatDoNotAddUp) {
  Residuals residuals(1, "int4", 2);
  std::vector<float> memory(30);
  const std::vector<Tensor> before{{.id = 7, .columns = 30}}, after{{.id = 7, .columns = 20}};
  residuals.of({.values = memory, .tensors = before});
  try {
    residuals.of({.values = std::span(memory).first(20), .tensors = after});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("tensor 7 has 20 values and had 30: what 'int4' holds back"));
  }
  EXPECT_THROW(residuals.of({.values = std::span(memory).first(20), .tensors = before}), Error);
}

}  // namespace
}  // namespace ranvier
