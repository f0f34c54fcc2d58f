#include "bench/tune.h"

#include <gtest/gtest.h>

namespace ranvier::bench {
namespace {

TEST(Tune, NeighbouringSizesOfOneAlgorithmAreOneRow) {
  const TuningRow kind{.transport = "tcp", .ranks = 4, .algorithm = {}};
  const auto rows =
      rows_of({{4, "one_round"}, {64, "one_round"}, {1024, "direct"}, {16384, "ring"}, {1 << 20, "ring"}}, kind);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].algorithm, "one_round");
  EXPECT_EQ(rows[0].up_to, 256U) << "between 64 and 1024";
  EXPECT_EQ(rows[1].up_to, 4096U);
  EXPECT_EQ(rows[2].algorithm, "ring");
  EXPECT_EQ(rows[2].up_to, TuningRow::max);
  EXPECT_EQ(rows[2].transport, "tcp");
}

TEST(Tune, OneSizeDecidesForAll) {
  const auto rows = rows_of({{4096, "swing"}}, {.transport = "shm", .ranks = 2, .algorithm = {}});
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].up_to, TuningRow::max);
}

}  // namespace
}  // namespace ranvier::bench
