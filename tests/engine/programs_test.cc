#include "engine/programs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ranvier::engine {
namespace {

// An all_reduce of many slices.
Shape shape_for(std::string_view algorithm) {
  Shape shape;
  shape.algorithm =
      static_cast<std::uint8_t>(std::ranges::find(algorithms(), algorithm, &Algorithm::name) - algorithms().begin());
  shape.count = 10'000;
  return shape;
}

TEST(Programs, OfOneShapeAreCompiledOnce) {
  ProgramCache programs(0, 4, {.slice_bytes = 4096, .buffered_bytes = 4096});
  const Shape shape = shape_for("ring");
  Shape other = shape;
  ++other.count;
  EXPECT_EQ(programs.find(shape).program, programs.find(shape).program);
  EXPECT_NE(programs.find(shape).program, programs.find(other).program);
}

// What comes again and again stays, however many others come once.
TEST(Programs, ThatWereUsedLongestAgoMakeRoom) {
  ProgramCache programs(0, 2, {.slice_bytes = 4096, .buffered_bytes = 4096});
  Shape shape = shape_for("ring");
  const auto of_size = [&](std::size_t count) {
    shape.count = count;
    return programs.find(shape).program;
  };
  constexpr std::size_t half = ProgramCache::capacity / 2;
  const std::shared_ptr<const Program> often = of_size(1), once = of_size(2);
  std::shared_ptr<const Program> last;
  for (std::size_t count = 3; count < 10 * half; ++count) {
    last = of_size(count);
    if (count % (half - 1) == 0) {
      EXPECT_EQ(of_size(1), often);
    }
  }
  EXPECT_EQ(of_size(10 * half - 1), last);
  EXPECT_EQ(often.use_count(), 2) << "this one, and the cache's";
  EXPECT_EQ(once.use_count(), 1);
}

// Two ranks that reduce into what they send each other: a slice must fit the link, or both wait to be read first.
TEST(Programs, InPlaceExchangesAreCutToWhatALinkTakesUnread) {
  ProgramCache programs(0, 2, {.slice_bytes = 4096, .buffered_bytes = 1000});
  Shape shape = shape_for("one_round");
  shape.in_place = true;
  const ReadyProgram in_place = programs.find(shape);
  EXPECT_EQ(in_place.slice_bytes, 512U);
  for (const Instruction& send : in_place.program->sends) EXPECT_LE(send.bytes, 512U);
  shape.in_place = false;
  EXPECT_EQ(programs.find(shape).slice_bytes, 4096U);
  Shape ring = shape_for("ring");
  ring.in_place = true;
  EXPECT_EQ(programs.find(ring).slice_bytes, 4096U);
}

}  // namespace
}  // namespace ranvier::engine
