// One ring by itself: what its writer and its reader promise each other, and what they refuse.
#include "transport/slot_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

constexpr std::size_t slice = 4096;

ConstBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string text_of(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

struct OneRing {
  explicit OneRing(std::uint32_t first = 0) {
    control.freed = first;
    writer = RingWriter(memory, first);
    reader = RingReader(memory, first);
  }
  RingControl control{};
  std::array<SlotLine, slots_per_ring> lines{};
  std::vector<std::byte> areas = std::vector<std::byte>(RingMemory::payload_bytes(slice));
  RingMemory memory{.control = &control, .lines = lines.data(), .payload = areas.data(), .slice_bytes = slice};
  RingWriter writer;
  RingReader reader;
};

TEST(Ring, IsEmptyAtFirst) {
  OneRing ring;
  EXPECT_TRUE(ring.reader.peek().empty());
  EXPECT_FALSE(ring.reader.has_news());
}

TEST(Ring, GivesHeadAndBodyAsOneView) {
  OneRing ring;
  EXPECT_EQ(ring.writer.try_push(bytes_of("head "), bytes_of("body")), 9u);
  EXPECT_EQ(text_of(ring.reader.peek()), "head body");
  EXPECT_FALSE(ring.reader.pop(5));
  EXPECT_EQ(text_of(ring.reader.peek()), "body");
  EXPECT_TRUE(ring.reader.pop(4));
  EXPECT_TRUE(ring.reader.peek().empty());
}

TEST(Ring, TakesNothingForNothing) {
  OneRing ring;
  EXPECT_EQ(ring.writer.try_push({}, {}), 0u);
  EXPECT_TRUE(ring.reader.peek().empty());
}

TEST(Ring, CarriesEveryLengthUnchanged) {
  OneRing ring;
  std::vector<std::byte> data(slice + head_bytes);
  std::minstd_rand random(7);
  for (auto& byte : data) byte = static_cast<std::byte>(random());
  constexpr std::array<std::size_t, 19> bodies{0,  1,  2,  3,  4,  7,  8,  15,   16,   17,
                                               31, 33, 48, 55, 56, 57, 64, 1000, slice};
  for (std::size_t head = 0; head <= head_bytes; ++head) {
    for (const std::size_t body : bodies) {
      const ConstBytes whole = ConstBytes(data).first(head + body);
      ASSERT_EQ(ring.writer.try_push(whole.first(head), whole.subspan(head)), whole.size());
      if (whole.empty()) continue;
      const ConstBytes view = ring.reader.peek();
      ASSERT_EQ(text_of(view), text_of(whole)) << head << " + " << body;
      ring.reader.pop(view.size());
    }
  }
}

TEST(Ring, CutsALargeBodyAtOneSlice) {
  OneRing ring;
  const std::vector<std::byte> body(3 * slice + 1);
  EXPECT_EQ(ring.writer.try_push(bytes_of("head"), body), 4 + slice);
  EXPECT_EQ(ring.writer.try_push({}, ConstBytes(body).subspan(slice)), slice);
  EXPECT_EQ(ring.writer.try_push({}, ConstBytes(body).last(1)), 1u);
}

TEST(Ring, AcceptsEightMessagesAndOneMoreForEachThatIsRead) {
  OneRing ring;
  for (int i = 0; i < 8; ++i) EXPECT_EQ(ring.writer.try_push({}, bytes_of("x")), 1u);
  EXPECT_EQ(ring.writer.try_push({}, bytes_of("x")), 0u);
  EXPECT_FALSE(ring.writer.has_news());
  ring.reader.peek();
  EXPECT_TRUE(ring.reader.pop(1));
  EXPECT_TRUE(ring.writer.has_news());
  EXPECT_EQ(ring.writer.try_push({}, bytes_of("x")), 1u);
  EXPECT_EQ(ring.writer.try_push({}, bytes_of("x")), 0u);
}

TEST(Ring, DoesNotFreeASlotThatIsPartlyRead) {
  OneRing ring;
  for (int i = 0; i < 8; ++i) ring.writer.try_push({}, bytes_of("xy"));
  ring.reader.peek();
  EXPECT_FALSE(ring.reader.pop(1));
  EXPECT_EQ(ring.writer.try_push({}, bytes_of("x")), 0u);
}

TEST(Ring, KeepsOrderWhenItsCountsWrapAround) {
  OneRing ring(~std::uint32_t{0} - 20);
  std::deque<std::string> on_the_way;
  std::minstd_rand random(3);
  int sent = 0;
  int received = 0;
  while (received < 100) {
    if (random() % 2 == 0) {
      const std::string text = std::to_string(sent);
      if (ring.writer.try_push({}, bytes_of(text)) > 0) {
        on_the_way.push_back(text);
        ++sent;
      } else {
        ASSERT_EQ(on_the_way.size(), slots_per_ring);
      }
    } else {
      const bool expected_news = !on_the_way.empty();
      const ConstBytes view = ring.reader.peek();
      ASSERT_EQ(!view.empty(), expected_news);
      if (view.empty()) continue;
      ASSERT_EQ(text_of(view), on_the_way.front());
      on_the_way.pop_front();
      ring.reader.pop(view.size());
      ++received;
    }
  }
}

TEST(Ring, TellsNewsOnce) {
  OneRing ring;
  ring.writer.try_push({}, bytes_of("a"));
  EXPECT_TRUE(ring.reader.has_news());
  EXPECT_FALSE(ring.reader.has_news());
  ring.writer.try_push({}, bytes_of("b"));
  EXPECT_TRUE(ring.reader.has_news());
  ring.writer.try_push({}, bytes_of("c"));
  for (int i = 0; i < 3; ++i) {
    ring.reader.peek();
    ring.reader.pop(1);
  }
  EXPECT_FALSE(ring.reader.has_news()) << "what was read is no news";
}

// Who waits for another ring asks neither try_push nor lent() here, and must be able to sleep all the same: four ranks
// whose lent pieces were given back in another order than they had been sent spun through their time slices.
TEST(Ring, TellsOfFreedSlotsOnce) {
  OneRing ring;
  for (int i = 0; i < 9; ++i) ring.writer.try_push({}, bytes_of("x"));
  for (int i = 0; i < 2; ++i) {
    ring.reader.peek();
    ring.reader.pop(1);
    EXPECT_TRUE(ring.writer.has_news());
    EXPECT_FALSE(ring.writer.has_news());
  }
  EXPECT_GT(ring.writer.try_push({}, bytes_of("x")), 0u);
}

TEST(Ring, RefusesAHeadThatIsTooLong) {
  OneRing ring;
  EXPECT_THROW(ring.writer.try_push(std::vector<std::byte>(65), {}), Error);
}

TEST(Ring, RefusesToReleaseMoreThanTheView) {
  OneRing ring;
  ring.writer.try_push({}, bytes_of("four"));
  EXPECT_THROW(ring.reader.pop(1), Error) << "nothing was looked at yet";
  ring.reader.peek();
  EXPECT_THROW(ring.reader.pop(5), Error);
}

TEST(Ring, RefusesALengthThatNoSlotHolds) {
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{slice + head_bytes + 1}, std::uint64_t{0xffffffff}}) {
    OneRing ring;
    ring.lines[0].tag = 1 | length << 32;
    EXPECT_THROW(ring.reader.peek(), Error) << length;
  }
}

TEST(Ring, RefusesCreditForSlotsThatWereNotUsed) {
  OneRing ring;
  for (int i = 0; i < 8; ++i) ring.writer.try_push({}, bytes_of("x"));
  ring.control.freed = 9;
  EXPECT_THROW(ring.writer.try_push({}, bytes_of("x")), Error);
}

}  // namespace
}  // namespace ranvier::transport
