// When a receiver goes on without the rest.
#include "engine/patience.h"

#include <gtest/gtest.h>

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using Time = Patience::Time;
using Arrival = Patience::Arrival;

const Time start = Time() + 10s;
constexpr std::size_t pieces = 1000;

Arrival arrival(std::size_t here, bool last = false) {
  return {.pieces = here, .first_at = start + 10ms, .newest_at = start + 20ms, .last_is_here = last, .reordering = 2ms};
}

Patience experienced(Patience::Duration each) {
  Patience patience(0.01);
  for (int round = 0; round < 5; ++round) patience.took(pieces, each);
  return patience;
}

TEST(Patience, EndsAtOnceWhenNoMoreThanTheShareIsMissing) {
  const Patience patience(0.01);
  EXPECT_EQ(patience.until(arrival(1000), pieces, start), Time::min());
  EXPECT_EQ(patience.until(arrival(990, true), pieces, start), Time::min());
  EXPECT_GT(patience.until(arrival(989, true), pieces, start), start + 20ms);
}

TEST(Patience, DoesNotGiveUpTheLastHundredthThatIsStillComing) {
  const Patience patience(0.01);
  EXPECT_EQ(patience.until(arrival(990), pieces, start), start + 22ms) << "its last piece may be lost";
  EXPECT_EQ(
      patience.until({.pieces = 990, .first_at = start, .newest_at = start + 1s, .reordering = 2ms}, pieces, start),
      start + 1s + 8 * (Patience::Duration(1s) / 990));
}

TEST(Patience, WithAShareThatAllWaitForOutlastsAPauseOfItsSender) {
  Patience patience(0.01, 0.5, Patience::first_silence, 50ms);
  for (int round = 0; round < 5; ++round) patience.took(pieces, 1ms);
  EXPECT_EQ(patience.until(arrival(500), pieces, start), start + 20ms + 50ms);
  EXPECT_EQ(patience.until(arrival(900, true), pieces, start), start + 22ms);
}

TEST(Patience, EndsAfterTheLastPieceAndWhatThePathReorders) {
  EXPECT_EQ(Patience(0.01).until(arrival(900, true), pieces, start), start + 22ms);
  EXPECT_EQ(experienced(1s).until(arrival(900, true), pieces, start), start + 22ms);
}

TEST(Patience, NeverEndsBeforeThereIsASignOfTheSender) {
  EXPECT_EQ(experienced(1ms).until({.reordering = 2ms}, pieces, Time::max()), Time::max());
}

TEST(Patience, EndsAQuarterAfterTheMedianOfThePastWhereNothingComes) {
  EXPECT_EQ(experienced(80ms).until(arrival(900), pieces, start), start + 100ms);
  EXPECT_EQ(Patience(0.01).until(arrival(900), pieces, start), start + 20ms + Patience::first_silence);
  EXPECT_EQ(Patience(0.01).until({.reordering = 2ms}, pieces, start), start + Patience::first_deadline);
  // One slow round in five does not move it.
  Patience patience = experienced(80ms);
  patience.took(pieces, 10s);
  EXPECT_EQ(patience.until(arrival(900), pieces, start), start + 100ms);
  // Messages of another size have their own past.
  EXPECT_EQ(patience.until(arrival(90), 100'000, start), start + 20ms + Patience::first_silence);
}

TEST(Patience, WaitsForWhatIsLateButStillComes) {
  const Patience patience = experienced(16ms);
  const Time late = start + 300ms;
  Arrival slow{.pieces = 500, .first_at = start, .newest_at = late, .reordering = 1ms};
  const Time until = patience.until(slow, pieces, start);
  EXPECT_GT(until, late + 300ms / 500) << "a piece comes every 0.6 ms";
  EXPECT_LT(until, late + 20ms);
}

TEST(Patience, LearnsThatThePathHasBecomeSlower) {
  Patience patience = experienced(80ms);
  for (std::size_t round = 0; round < Patience::rounds_kept; ++round) patience.took(pieces, 160ms);
  EXPECT_EQ(patience.until(arrival(900), pieces, start), start + 200ms);
}

TEST(Patience, OfRanksThatBeginUnlikeIsThatOfFourRoundsInFive) {
  Patience patience(0.01, 0.8, {});
  for (int round = 0; round < 10; ++round) patience.took(pieces, (round + 1) * 10ms);
  EXPECT_EQ(patience.until({.reordering = 2ms}, pieces, start), start + 112500us) << "nothing has come";
  // Late once, it is given up; late again and again, that is how it is.
  patience.took_longer(pieces, 1s);
  EXPECT_EQ(patience.until({.reordering = 2ms}, pieces, start), start + 112500us);
  for (int round = 0; round < 3; ++round) patience.took_longer(pieces, 1s);
  EXPECT_EQ(patience.until({.reordering = 2ms}, pieces, start), start + 2500ms);
}

TEST(Patience, WithWhatNeverEndsDoesNotGrowWithoutEnd) {
  Patience patience(0.01, 0.8, {});
  Patience::Duration waited = 0ms;
  for (int round = 0; round < 100; ++round) {
    waited = patience.until({.reordering = 2ms}, pieces, start) - start;
    patience.took_longer(pieces, waited);
  }
  EXPECT_EQ(waited, Patience::longest_guess * 5 / 4);
}

}  // namespace
}  // namespace ranvier::engine
