#include "transport/arrival_pace.h"

#include <gtest/gtest.h>

#include <random>

namespace ranvier::transport {
namespace {

constexpr std::size_t sample = ArrivalPace::sample_bytes;
constexpr std::uint64_t long_wait = ArrivalPace::ticks_of_long_wait;
constexpr std::uint64_t slow = 2 * long_wait, fast = long_wait / 20;

// Bytes come in pieces, `ticks` for each sample.
struct Line {
  ArrivalPace pace{long_wait};
  std::uint64_t now = 1'000'000'000;
  void carry(std::size_t samples, std::uint64_t ticks, std::size_t pieces = 16) {
    for (std::size_t i = 0; i < samples * pieces; ++i) pace.came(sample / pieces, now += ticks / pieces);
  }
};

TEST(ArrivalPace, NothingIsKnownAtFirst) {
  const ArrivalPace pace(long_wait);
  EXPECT_EQ(pace.time_for(1 << 30), 0U);
  EXPECT_EQ(pace.before_waking(1 << 30), 0U);
}

TEST(ArrivalPace, ALineIsSlowOnceSeveralSamplesWere) {
  Line line;
  line.carry(3, slow);
  EXPECT_EQ(line.pace.time_for(sample), 0U);
  line.carry(3, slow);
  EXPECT_NEAR(static_cast<double>(line.pace.time_for(sample)), slow, slow / 8.0);
  EXPECT_NEAR(static_cast<double>(line.pace.time_for(4 * sample)), 4 * slow, slow / 2.0);
}

TEST(ArrivalPace, AFastLineIsNotSlowForAStallNowAndThen) {
  Line line;
  for (int i = 0; i < 200; ++i) {
    line.carry(2, slow);
    line.carry(2, fast);
    ASSERT_EQ(line.pace.time_for(sample), 0U) << i;
  }
}

// Between messages the kernel keeps what comes: it is there at once when it is asked for.
TEST(ArrivalPace, ASlowLineStaysSlowThroughRestsAndWhatTheKernelKeptMeanwhile) {
  Line line;
  line.carry(20, slow);
  for (int i = 0; i < 50; ++i) {
    line.now += 500'000'000;  // nobody asks
    line.carry(1, fast);
    ASSERT_GT(line.pace.time_for(sample), 0U) << i;
    line.carry(6, slow);
  }
}

TEST(ArrivalPace, ALineThatBecomesFastIsKnownToBeSoon) {
  Line line;
  line.carry(50, slow);
  line.carry(5, fast);
  EXPECT_EQ(line.pace.time_for(sample), 0U);
}

// However long a line rests between them, they show what it does.
TEST(ArrivalPace, MessagesFarBetweenMakeNoLineSlowWherePausesCount) {
  for (const std::size_t message : {sample / 4, sample / 2, sample, 2 * sample, 3 * sample}) {
    Line patient{.pace = ArrivalPace(long_wait, 8)}, simple;
    for (Line* const line : {&patient, &simple})
      for (int i = 0; i < 100; ++i) {
        line->now += 10 * long_wait;
        for (std::size_t bytes = 0; bytes < message; bytes += 1024) line->pace.came(1024, line->now += fast / 64);
      }
    EXPECT_EQ(patient.pace.time_for(sample), 0U) << message;
    EXPECT_EQ(simple.pace.time_for(sample) > 0, message <= sample) << message;
    patient.carry(8, slow);
    EXPECT_TRUE(patient.pace.takes_long(sample)) << message;
  }
}

TEST(ArrivalPace, WhoeverSleepsWakesBeforeTheLastByteAndNeverAwaitsMoreThanComes) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    Line line;
    const std::uint64_t ticks = long_wait + random() % 100'000'000;
    line.carry(8, ticks, 1 + random() % 64);
    const std::size_t bytes = random() % (4 * sample);
    const std::size_t before = line.pace.before_waking(bytes);
    EXPECT_LE(before, bytes);
    if (line.pace.time_for(bytes) < long_wait) continue;
    EXPECT_GT(before, 0U);
    const std::uint64_t early = line.pace.early();
    EXPECT_GE(line.pace.time_for(bytes - before) + 2, early - early / 100);
  }
}

}  // namespace
}  // namespace ranvier::transport
