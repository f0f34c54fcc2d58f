#include "engine/flight_recorder.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "engine/message_header.h"

namespace ranvier::engine {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(FlightRecorderTest, TellsWhatRanAndHowItEnded) {
  FlightRecorder recorder;
  const auto first =
      recorder.start({.sequence = 7, .collective = Collective::all_reduce, .dtype = DType::f32, .bytes = 64});
  recorder.end(first, false);
  const auto second = recorder.start({.sequence = 8, .collective = Collective::broadcast});
  recorder.end(second, true);
  recorder.start({.collective = Collective::send, .peer = 3});
  const std::string text = recorder.dump();
  EXPECT_THAT(text, HasSubstr("#7 all_reduce f32 sum 64 B"));
  EXPECT_THAT(text, HasSubstr("done after"));
  EXPECT_THAT(text, HasSubstr("failed after"));
  EXPECT_THAT(text, HasSubstr("#8 broadcast u8 0 B")) << "what does not reduce has no operator";
  EXPECT_THAT(text, HasSubstr("\nsend with rank 3")) << "messages have no numbers";
  EXPECT_THAT(text, HasSubstr("still running"));
}

TEST(FlightRecorderTest, TellsWhatIsAboutToFailFromWhatIsUnderWay) {
  FlightRecorder recorder;
  recorder.end(recorder.start({.sequence = 0}), false);
  const auto failing = recorder.start({.sequence = 1});
  recorder.start({.sequence = 2});
  const std::string text = recorder.dump(8, failing);
  EXPECT_THAT(text,
              ContainsRegex("#0 [^\n]* done after [^\n]*\n#1 [^\n]* failed after [^\n]*\n#2 [^\n]* still running\n"));
  EXPECT_THAT(recorder.dump(), Not(HasSubstr("failed")));
}

TEST(FlightRecorderTest, OfTheMeetingTellsWhatDidNotEndWell) {
  FlightRecorder recorder;
  recorder.end(recorder.start({.sequence = first_of_meeting}), false);
  EXPECT_THAT(recorder.dump(8), ContainsRegex("^#0 of the meeting [^\n]* done[^\n]*\n$")) << "there is nothing else";
  recorder.end(recorder.start({.sequence = 5}), false);
  for (std::uint32_t i = 0; i < 20; ++i) recorder.end(recorder.start({.sequence = first_of_meeting + i}), i == 3);
  const std::string text = recorder.dump(8);
  EXPECT_THAT(text, ContainsRegex("^#5 [^\n]* done[^\n]*\n#3 of the meeting [^\n]* failed[^\n]*\n$"));
}

TEST(FlightRecorderTest, KeepsTheNewest) {
  FlightRecorder recorder;
  for (std::uint32_t i = 0; i < 3 * FlightRecorder::capacity; ++i) recorder.end(recorder.start({.sequence = i}), false);
  const std::string text = recorder.dump();
  EXPECT_EQ(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')), FlightRecorder::capacity);
  EXPECT_THAT(text, HasSubstr("#767 "));
  EXPECT_THAT(text, Not(HasSubstr("#511 ")));
  const std::string last = recorder.dump(2);
  EXPECT_EQ(std::count(last.begin(), last.end(), '\n'), 2);
}

TEST(FlightRecorderTest, AnOverwrittenPlaceIsLeftAlone) {
  FlightRecorder recorder;
  const auto old = recorder.start({.sequence = 1});
  for (std::uint32_t i = 0; i < FlightRecorder::capacity; ++i) recorder.start({.sequence = 100 + i});
  recorder.end(old, true);
  EXPECT_THAT(recorder.dump(), Not(HasSubstr("failed")));
}

}  // namespace
}  // namespace ranvier::engine
