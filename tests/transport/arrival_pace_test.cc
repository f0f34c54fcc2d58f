#include "transport/arrival_pace.h"

#include <gtest/gtest.h>

#include <random>

namespace ranvier::transport {
namespace {

constexpr std::size_t sample = ArrivalPace::sample_bytes;
constexpr std::uint64_t slow = 2 * ArrivalPace::long_wait, fast = ArrivalPace::long_wait / 20;

// Bytes come in pieces, `ticks` for each sample.
struct Line {
  ArrivalPace pace = {};
  std::uint64_t now = 1'000'000'000;
  void carry(std::size_t samples, std::uint64_t ticks, std::size_t pieces = 16) {
    for (std::size_t i = 0; i < samples * pieces; ++i) pace.came(sample / pieces, now += ticks / pieces);
  }
};

TEST(ArrivalPace, NothingIsKnownAtFirst) {
  const ArrivalPace pace;
  EXPECT_EQ(pace.ticks_for(1 << 30), 0U);
  EXPECT_EQ(pace.before_waking(1 << 30), 0U);
}

TEST(ArrivalPace, ALineIsSlowOnceSeveralSamplesWere) {
  Line line;
  line.carry(3, slow);
  EXPECT_EQ(line.pace.ticks_for(sample), 0U);
  line.carry(3, slow);
  EXPECT_NEAR(static_cast<double>(line.pace.ticks_for(sample)), slow, slow / 8.0);
  EXPECT_NEAR(static_cast<double>(line.pace.ticks_for(4 * sample)), 4 * slow, slow / 2.0);
}

TEST(ArrivalPace, AFastLineIsNotSlowForAStallNowAndThen) {
  Line line;
  for (int i = 0; i < 200; ++i) {
    line.carry(2, slow);
    line.carry(2, fast);
    ASSERT_EQ(line.pace.ticks_for(sample), 0U) << i;
  }
}

// Between messages the kernel keeps what comes: it is there at once when it is asked for.
TEST(ArrivalPace, ASlowLineStaysSlowThroughRestsAndWhatTheKernelKeptMeanwhile) {
  Line line;
  line.carry(20, slow);
  for (int i = 0; i < 50; ++i) {
    line.now += 500'000'000;  // nobody asks
    line.carry(1, fast);
    ASSERT_GT(line.pace.ticks_for(sample), 0U) << i;
    line.carry(6, slow);
  }
}

TEST(ArrivalPace, ALineThatBecomesFastIsKnownToBeSoon) {
  Line line;
  line.carry(50, slow);
  line.carry(5, fast);
  EXPECT_EQ(line.pace.ticks_for(sample), 0U);
}

TEST(ArrivalPace, WhoeverSleepsWakesBeforeTheLastByteAndNeverAwaitsMoreThanComes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    Line line;
    const std::uint64_t ticks = ArrivalPace::long_wait + random() % 100'000'000;
    line.carry(8, ticks, 1 + random() % 64);
    const std::size_t bytes = random() % (4 * sample);
    const std::size_t before = line.pace.before_waking(bytes);
    EXPECT_LE(before, bytes);
    if (line.pace.ticks_for(bytes) < ArrivalPace::long_wait) continue;
    EXPECT_GT(before, 0U);
    EXPECT_GE(line.pace.ticks_for(bytes - before) + 2, ArrivalPace::early - ArrivalPace::early / 100);
  }
}

}  // namespace
}  // namespace ranvier::transport
