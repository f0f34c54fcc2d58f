#include "engine/core_sharing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace ranvier::engine {
namespace {

constexpr std::uint64_t away = 2 * CoreSharing::slice;
constexpr int two = 2;  // ranks that share a core

TEST(CoreSharing, GoesOnWhileTheCoreComesBackSoon) {
  CoreSharing core(two);
  std::uint64_t now = ticks();
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(core.pays(now));
    core.came(CoreSharing::slice, now + CoreSharing::slice);
    now += CoreSharing::slice;
  }
}

// What time alone has saved up before the first absence.
void spend_all(CoreSharing& core, std::uint64_t now) {
  while (core.pays(now)) core.came(away, now);
}

TEST(CoreSharing, StopsForTenTimesAsLongAsTheCoreWasAway) {
  CoreSharing core(two);
  const std::uint64_t start = ticks();
  spend_all(core, start);
  std::uint64_t now = start;
  while (!core.pays(now)) now += 1000;
  core.came(away, now);
  EXPECT_FALSE(core.pays(now));
  EXPECT_FALSE(core.pays(now + 10 * away - 1001));
  EXPECT_TRUE(core.pays(now + 10 * away));
}

// Beside somebody who computes for a slice of time whenever he is let, and keeps the core for long: what is lost beyond
// a tenth of the time is what yields spared, and what was saved up.
TEST(CoreSharing, LosesATenthOfTheTimeAndWhatItSparedAtMost) {
  for (const int good : {0, 1, 10, 20, 100}) {  // yields for each that ends in a long absence
    CoreSharing core(two);
    const std::uint64_t start = ticks();
    std::uint64_t now = start, lost = 0, spared = 0;
    while (now < start + 1000 * away) {
      for (int i = 0; i < good && core.pays(now); ++i) {
        core.came(1000, now + 1000);
        now += 1000;
        spared += CoreSharing::sleep;
      }
      if (core.pays(now)) {
        core.came(away, now + away);
        now += away;
        lost += away;
      } else {
        now += away / 100;  // asleep, until something comes
      }
    }
    EXPECT_GT(lost, 0u) << good << ": it tries again";
    EXPECT_LE(lost, (now - start) / 10 + spared + core.most_saved() + away) << good;
  }
}

TEST(CoreSharing, GoesOnWhereYieldsSpareMoreThanAbsencesCost) {
  CoreSharing core(two);
  std::uint64_t now = ticks();
  spend_all(core, now);
  while (!core.pays(now)) now += away / 100;
  for (int absence = 0; absence < 100; ++absence) {
    for (std::uint64_t saved = 0; saved <= away; saved += CoreSharing::sleep) {
      ASSERT_TRUE(core.pays(now)) << absence;
      core.came(1, now);
    }
    core.came(away, now + away);
    now += away;
  }
}

TEST(CoreSharing, SavesUpNoMoreThanSomeAbsences) {
  CoreSharing core(two);
  const std::uint64_t now = ticks();
  for (int i = 0; i < 100'000; ++i) core.came(1, now);
  for (std::uint64_t lost = 0; lost <= core.most_saved(); lost += away) core.came(away, now + away);
  EXPECT_FALSE(core.pays(now + away));
}

// As when ranks start one after another, or one loads its data: the absence is long, and says nothing of the next.
TEST(CoreSharing, OneAbsenceAloneCostsWhatCanBeSavedUp) {
  CoreSharing core(two);
  const std::uint64_t very_long = 100 * core.most_saved();
  std::uint64_t now = ticks();
  core.came(very_long, now + very_long);
  now += very_long;
  EXPECT_TRUE(core.pays(now));
  spend_all(core, now);
  now += very_long * CoreSharing::price;
  core.came(very_long, now + very_long);
  now += very_long;
  EXPECT_TRUE(core.pays(now + CoreSharing::price * core.most_saved()));

  // Another one soon after it: they are no exceptions.
  now += very_long * CoreSharing::price / 2;
  core.came(very_long, now + very_long);
  now += very_long;
  EXPECT_FALSE(core.pays(now + CoreSharing::price * (very_long - core.most_saved()) - 1));
  EXPECT_TRUE(core.pays(now + CoreSharing::price * very_long));
}

// As many slices of time may pass as there are others on the core.
TEST(CoreSharing, WhatIsLongDependsOnHowManyShareACore) {
  for (const int ranks : {1, 2, 4, 8}) {
    CoreSharing core(ranks);
    const std::uint64_t turns = CoreSharing::slice * static_cast<std::uint64_t>(std::max(ranks - 1, 1));
    std::uint64_t now = ticks();
    for (int i = 0; i < 100; ++i, now += turns) core.came(turns, now + turns);
    EXPECT_TRUE(core.pays(now)) << ranks;
    for (int i = 0; i < 100; ++i, now += turns + 1) core.came(turns + 1, now + turns + 1);
    EXPECT_FALSE(core.pays(now)) << ranks;
  }
}

// The counter may be near its end, and does not start with this process.
TEST(CoreSharing, CountsAcrossTheEndOfTheCounter) {
  const std::uint64_t end = 0 - std::uint64_t{1};
  CoreSharing core(two, end);
  spend_all(core, end);
  EXPECT_FALSE(core.pays(end));
  EXPECT_TRUE(core.pays(10 * away + core.most_saved()));
}

}  // namespace
}  // namespace ranvier::engine
