// Who measures with whom, and when.
#include "probe/pairs.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace ranvier::probe {
namespace {

TEST(Partners, MeetOnceEachInAsFewRoundsAsThereAre) {
  for (Rank world = 2; world <= 33; ++world) {
    const std::size_t rounds = static_cast<std::size_t>(world - 1 + world % 2);
    std::vector<std::vector<Rank>> of;
    for (Rank rank = 0; rank < world; ++rank) of.push_back(partners(rank, world));
    std::set<std::pair<Rank, Rank>> met;
    for (std::size_t round = 0; round < rounds; ++round) {
      Rank resting = 0;
      for (Rank rank = 0; rank < world; ++rank) {
        const auto& mine = of[static_cast<std::size_t>(rank)];
        ASSERT_EQ(mine.size(), rounds) << world;
        const Rank partner = mine[round];
        if (partner < 0) {
          ++resting;
          continue;
        }
        ASSERT_NE(partner, rank);
        ASSERT_LT(partner, world);
        EXPECT_EQ(of[static_cast<std::size_t>(partner)][round], rank) << world << ", round " << round;
        if (rank < partner) {
          EXPECT_TRUE(met.emplace(rank, partner).second) << world << ": again " << rank;
        }
      }
      EXPECT_EQ(resting, world % 2) << world << ", round " << round;
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(world * (world - 1) / 2));
  }
}

}  // namespace
}  // namespace ranvier::probe
