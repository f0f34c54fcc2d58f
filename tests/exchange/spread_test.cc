// How gradients are spread over pieces that may be lost.
#include "engine/spread.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/normal_values.h"

namespace ranvier::engine {
namespace {

using support::normal_values;

double energy(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return sum;
}

TEST(Spread, EveryPartBeginsWhereTheOneBeforeEndsAndIsWholeBlocks) {
  for (const std::size_t count : {0, 1, 1023, 1024, 1025, 100'000, 1'234'567})
    for (const Rank world : {1, 2, 3, 8, 64}) {
      const SpreadLayout layout(count, world);
      std::size_t sum = 0;
      for (Rank part = 0; part < world; ++part) {
        EXPECT_EQ(layout.begin_of(part), sum);
        EXPECT_LE(layout.size_of(part), layout.part_values);
        sum += layout.size_of(part);
      }
      EXPECT_EQ(sum, count);
      EXPECT_EQ(layout.part_values % spread_block, 0U);
      EXPECT_EQ(layout.part_bytes(), layout.part_pieces() * PartialMessages::piece_bytes);
    }
}

TEST(Spread, ComesBackButForRounding) {
  for (const std::size_t blocks : {1, 2, 16, 17, 255, 256, 257, 600})
    for (const std::size_t less : {0, 1, 1500}) {
      const std::size_t count = blocks * spread_block - std::min(less, blocks * spread_block);
      const auto values = normal_values(count, static_cast<unsigned>(blocks));
      std::vector<float> spread(blocks * spread_block), back(count);
      spread_out(values, spread, 7);
      EXPECT_NEAR(energy(spread) / std::max(energy(values), 1.), count > 0 ? 1 : 0, 1e-4);
      bring_back(spread, back, 7);
      for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(back[i], values[i], 1e-5);
    }
}

TEST(Spread, GroupByGroupIsTheSameAsAllAtOnce) {
  const std::size_t count = 2 * spread_group + 37 * spread_block;
  const auto values = normal_values(count - 5, 1);
  std::vector<float> whole(count), groups(count), back(values.size());
  spread_out(values, whole, 7);
  for (std::size_t group = 0, begin = 0; begin < count; begin += spread_group, ++group) {
    const auto some = std::span(values).subspan(begin);
    const auto to = std::span(groups).subspan(begin).first(std::min(spread_group, count - begin));
    spread_out(some.first(std::min(spread_group, some.size())), to, 7, group);
    const auto home = std::span(back).subspan(begin);
    bring_back(to, home.first(std::min(spread_group, home.size())), 7, group);
  }
  EXPECT_EQ(whole, groups);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(back[i], values[i], 1e-5);
}

TEST(Spread, TheSumOfWhatIsSpreadIsTheSpreadSum) {
  const auto a = normal_values(40 * spread_block, 1), b = normal_values(40 * spread_block, 2);
  std::vector<float> sum(a.size()), spread_a(a.size()), spread_b(a.size()), back(a.size());
  spread_out(a, spread_a, 3);
  spread_out(b, spread_b, 3);
  for (std::size_t i = 0; i < a.size(); ++i) sum[i] = spread_a[i] + spread_b[i];
  bring_back(sum, back, 3);
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(back[i], a[i] + b[i], 2e-5);
}

// Gradients of one layer that are much larger than all others: without spreading a piece might take most of it.
TEST(Spread, ALostPieceCostsEveryBlockTheSameLittle) {
  constexpr std::size_t blocks = 512;
  auto values = normal_values(blocks * spread_block, 5);
  for (std::size_t i = 3000; i < 4000; ++i) values[i] *= 1000;
  std::vector<float> spread(values.size()), back(values.size());
  spread_out(values, spread, 11);
  const std::size_t pieces = values.size() / values_a_piece;
  for (const std::size_t lost : {std::size_t{0}, pieces / 3, pieces - 1}) {
    auto with_hole = spread;
    for (std::size_t i = 0; i < values_a_piece; ++i) with_hole[lost * values_a_piece + i] = 0;
    bring_back(with_hole, back, 11);
    for (std::size_t block = 0; block < blocks; ++block) {
      double error = 0, whole = 0;
      for (std::size_t i = block * spread_block; i < (block + 1) * spread_block; ++i) {
        error += std::pow(double{back[i]} - values[i], 2);
        whole += std::pow(double{values[i]}, 2);
      }
      // One coefficient of 1024, which is normal to begin with: 30 times its mean is beyond five deviations.
      EXPECT_LE(error, 30 * whole / spread_block);
    }
  }
}

TEST(Spread, OtherSeedsRotateOtherwise) {
  const auto values = normal_values(spread_block, 5);
  std::vector<float> a(values.size()), b(values.size());
  spread_out(values, a, 1);
  spread_out(values, b, 2);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace ranvier::engine
