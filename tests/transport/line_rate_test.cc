// What the receiver of packet trains tells of a line, and what its sender makes of that.
#include "transport/line_rate.h"

#include <gtest/gtest.h>

#include <random>

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;
using Time = PacketTrain::Time;

TEST(PacketTrain, measures_what_left_together_by_when_it_arrived) {
  PacketTrain train;
  Time at = Time() + 1s;
  EXPECT_EQ(train.take(), 0U);
  for (std::uint64_t number = 1; number <= 4; ++number, at += 120us) train.arrived(number, number > 1, 1500, at);
  EXPECT_EQ(train.take(), 12'500U);  // 3 packets in 360 us
  EXPECT_EQ(train.take(), 0U);
}

TEST(PacketTrain, says_nothing_of_packets_that_left_apart_or_were_handed_over_together) {
  PacketTrain train;
  const Time at = Time() + 1s;
  for (std::uint64_t number = 1; number <= 4; ++number)
    train.arrived(number, false, 1500, at + static_cast<int>(number) * 1ms);
  EXPECT_EQ(train.take(), 0U);
  for (std::uint64_t number = 5; number <= 40; ++number) train.arrived(number, number > 5, 1500, at + 9ms);
  EXPECT_EQ(train.take(), 0U);
  train.arrived(41, false, 1500, at + 10ms);
  train.arrived(43, true, 1500, at + 11ms);  // the one between is missing
  EXPECT_EQ(train.take(), 0U);
}

// Cards hand over what came in the last 100 us: of those that came with the first one nobody knows when they did.
TEST(PacketTrain, counts_what_comes_after_the_first_batch) {
  PacketTrain train;
  const Time at = Time() + 1s;
  for (std::uint64_t number = 1; number <= 40; ++number)
    train.arrived(number, number > 1, 1250, at + (number + 9) / 10 * 100us);
  EXPECT_EQ(train.take(), 125'000U);
}

TEST(LineRate, is_unknown_until_enough_was_told_and_then_the_median) {
  LineRate line;
  std::mt19937 random(3);
  for (int i = 0; i < 7; ++i) line.told(1e6);
  EXPECT_EQ(line.rate(), 0);
  // A third of them are far off, either way.
  for (int i = 0; i < 200; ++i) {
    const auto chance = random() % 6;
    line.told(chance == 0 ? 1e5 : chance == 1 ? 1e9 : 1e7 * (0.95 + 0.1 * static_cast<double>(random() % 100) / 100));
    if (i < 60) continue;
    EXPECT_GT(line.rate(), 0.94e7);
    EXPECT_LT(line.rate(), 1.06e7);
  }
}

}  // namespace
}  // namespace ranvier::transport
