#include "engine/lending.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace ranvier::engine {
namespace {

struct Costs {
  std::uint64_t copied = 0, lent = 0;
};

// How many of so many operations lend. A third of them are disturbed, and take ten times as long.
std::uint32_t lends(Lending& lending, std::uint32_t operations, const Costs& costs) {
  std::uint32_t lent = 0;
  for (std::uint32_t i = 0; i < operations; ++i) {
    const bool lends = lending.begin();
    lent += lends ? 1 : 0;
    lending.took(lends, (lends ? costs.lent : costs.copied) * (i % 3 == 0 ? 10 : 1));
  }
  return lent;
}

TEST(Lending, TakesTheFasterWayAndTriesTheOtherNowAndThen) {
  for (std::uint32_t periods = 1; periods < 5; ++periods) {
    Lending lending;
    EXPECT_EQ(lends(lending, periods * Lending::period, {.copied = 50, .lent = 109}), periods * Lending::tries);
  }
  Lending lending;
  EXPECT_EQ(lends(lending, Lending::period, {.copied = 40, .lent = 30}), Lending::period - Lending::tries);
}

TEST(Lending, FollowsCoresThatMove) {
  Lending lending;
  lends(lending, Lending::period + Lending::period / 2, {.copied = 40, .lent = 30});
  lends(lending, Lending::period / 2, {.copied = 50, .lent = 109});
  EXPECT_EQ(lends(lending, Lending::period, {.copied = 50, .lent = 109}), Lending::tries);
  EXPECT_EQ(lends(lending, Lending::period, {.copied = 40, .lent = 30}), Lending::period - Lending::tries);
}

// Of one that failed nothing is told.
TEST(Lending, LendsWhereItKnowsNothing) {
  Lending lending;
  for (std::uint32_t i = 0; i < 2 * Lending::tries; ++i) lending.begin();
  EXPECT_TRUE(lending.begin());
}

}  // namespace
}  // namespace ranvier::engine
