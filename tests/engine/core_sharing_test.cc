#include "engine/core_sharing.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace ranvier::engine {
namespace {

constexpr std::uint64_t away = 2 * CoreSharing::long_absence;

TEST(CoreSharing, GoesOnWhileTheCoreComesBackSoon) {
  CoreSharing core;
  std::uint64_t now = ticks();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(core.pays(now));
    core.note(now, now + CoreSharing::long_absence);
    now += CoreSharing::long_absence;
  }
}

TEST(CoreSharing, StopsForTenTimesAsLongAsTheCoreWasAway) {
  CoreSharing core;
  const std::uint64_t back = ticks();
  core.note(back - away, back);
  EXPECT_FALSE(core.pays(back));
  EXPECT_FALSE(core.pays(back + 10 * away - 1));
  EXPECT_TRUE(core.pays(back + 10 * away));
}

// Beside somebody who computes for a slice of time whenever he is let, and keeps the core for long.
TEST(CoreSharing, LosesATenthOfTheTimeAtMost) {
  CoreSharing core;
  const std::uint64_t start = ticks();
  std::uint64_t now = start, lost = 0;
  while (now < start + 1000 * away) {
    if (core.pays(now)) {
      core.note(now, now + away);
      now += away;
      lost += away;
    } else {
      now += away / 100;  // asleep, until something comes
    }
  }
  EXPECT_GT(lost, 0u) << "it tries again";
  EXPECT_LE(lost, (now - start) / 10);
}

// The counter may be near its end, and does not start with this process.
TEST(CoreSharing, CountsAcrossTheEndOfTheCounter) {
  CoreSharing core;
  core.note(0 - away - 1, 0 - std::uint64_t{1});
  EXPECT_FALSE(core.pays(0 - std::uint64_t{1}));
  EXPECT_FALSE(core.pays(5 * away));
  EXPECT_TRUE(core.pays(10 * away));
}

}  // namespace
}  // namespace ranvier::engine
