// Answers in place: what goes back lies where the question lay, which serves nothing else until it is read.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/slot_ring.h"

namespace ranvier::transport {
namespace {

constexpr std::size_t slice = 4096;

// Both directions between two ranks, a and b.
struct TwoRings {
  explicit TwoRings(std::uint32_t first = 0) : there(first), back(first) {
    a_reads = RingReader(back.memory, first, nullptr, &there.writer);
    b_reads = RingReader(there.memory, first, nullptr, &back.writer);
  }
  struct Direction {
    explicit Direction(std::uint32_t first) {
      control.freed = first;
      writer = RingWriter(memory, first);
    }
    RingControl control{};
    std::array<SlotLine, slots_per_ring> lines{};
    std::vector<std::byte> areas = std::vector<std::byte>(RingMemory::payload_bytes(slice));
    RingMemory memory{.control = &control, .lines = lines.data(), .payload = areas.data(), .slice_bytes = slice};
    RingWriter writer;
  };
  Direction there, back;
  RingReader a_reads, b_reads;

  // b answers the oldest message, of which `head` bytes are none of the question's, with bytes of `value`.
  void answer(std::byte value, std::size_t head = 0) {
    const Bytes place = b_reads.answerable(b_reads.peek().subspan(head));
    ASSERT_FALSE(place.empty());
    ASSERT_TRUE(back.writer.has_room());
    std::ranges::fill(place, value);
    back.writer.push_answer({}, b_reads.place_of(place));
    b_reads.pop_answered();
  }
};

std::vector<std::byte> filled(std::size_t bytes, int value) { return std::vector(bytes, std::byte(value)); }

TEST(Answers, LieWhereTheQuestionLay) {
  TwoRings rings;
  const auto question = filled(1000, 1), head = filled(40, 7);
  ASSERT_EQ(rings.there.writer.try_push(head, question, true), 1040u);
  const ConstBytes view = rings.b_reads.peek();
  rings.answer(std::byte{2}, head.size());
  const ConstBytes answer = rings.a_reads.peek();
  EXPECT_EQ(answer.data(), view.data() + head.size());
  EXPECT_TRUE(std::ranges::equal(answer, filled(1000, 2)));
  EXPECT_TRUE(rings.a_reads.pop(1000));
  EXPECT_TRUE(rings.a_reads.peek().empty());
  EXPECT_TRUE(rings.b_reads.peek().empty());
}

TEST(Answers, MayHaveAHeadInFront) {
  TwoRings rings;
  rings.there.writer.try_push({}, filled(1000, 1), true);
  const Bytes place = rings.b_reads.answerable(rings.b_reads.peek());
  ASSERT_EQ(place.size(), 1000u);
  rings.back.writer.push_answer(filled(64, 9), rings.b_reads.place_of(place));
  rings.b_reads.pop_answered();
  EXPECT_TRUE(std::ranges::equal(rings.a_reads.peek(), filled(64, 9)));
  EXPECT_FALSE(rings.a_reads.pop(64));
  EXPECT_EQ(rings.a_reads.peek().data(), place.data());
  EXPECT_EQ(rings.a_reads.peek().size(), 1000u);
  EXPECT_FALSE(rings.a_reads.pop(999));
  EXPECT_TRUE(rings.a_reads.pop(1));
}

TEST(Answers, KeepTheirSlotUntilTheyAreRead) {
  TwoRings rings;
  for (std::uint32_t i = 0; i < slots_per_ring; ++i)
    ASSERT_GT(rings.there.writer.try_push({}, filled(1000, 1), true), 0u);
  rings.answer(std::byte{2});
  rings.b_reads.peek();
  rings.b_reads.pop(1000);  // the second one is received as ever, and yet its slot waits for the first one
  EXPECT_EQ(rings.there.writer.try_push({}, filled(10, 3)), 0u);
  EXPECT_FALSE(rings.there.writer.has_news()) << "it waits for itself, nobody can wake it";
  EXPECT_TRUE(std::ranges::equal(rings.a_reads.peek(), filled(1000, 2)));
  EXPECT_EQ(rings.there.writer.try_push({}, filled(10, 3)), 0u) << "it has been seen, not read";
  rings.a_reads.pop(1000);
  EXPECT_GT(rings.there.writer.try_push({}, filled(10, 3)), 0u);
  EXPECT_GT(rings.there.writer.try_push({}, filled(10, 3)), 0u);
  EXPECT_EQ(rings.there.writer.try_push({}, filled(10, 3)), 0u);
}

TEST(Answers, AreGivenOnlyToWhatAsksAndAsAWhole) {
  TwoRings rings;
  rings.there.writer.try_push({}, filled(1000, 1));
  EXPECT_TRUE(rings.b_reads.answerable(rings.b_reads.peek()).empty()) << "it does not ask";
  rings.b_reads.pop(1000);
  rings.there.writer.try_push({}, filled(100, 1), true);
  EXPECT_TRUE(rings.b_reads.answerable(rings.b_reads.peek()).empty()) << "it lies in the slot's own lines";
  rings.b_reads.pop(100);
  rings.there.writer.try_push({}, filled(1000, 1), true);
  const ConstBytes view = rings.b_reads.peek();
  EXPECT_TRUE(rings.b_reads.answerable(view.first(999)).empty());
  EXPECT_TRUE(rings.b_reads.answerable(view.subspan(1000)).empty());
  EXPECT_TRUE(rings.b_reads.answerable(filled(1000, 1)).empty()) << "memory of somebody else";
  EXPECT_EQ(rings.b_reads.answerable(view.subspan(1)).size(), 999u);
  rings.b_reads.pop(1000);
  rings.there.writer.try_push({}, filled(1000, 1));
  EXPECT_TRUE(rings.b_reads.answerable(rings.b_reads.peek()).empty()) << "the one before asked";
}

// Every mix of what asks and does not, is answered or not, read early or late; counts wrap around on the way.
TEST(Answers, MixWithAllElse) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    TwoRings rings(0u - 100);
    std::minstd_rand random(seed);
    std::vector<std::vector<std::byte>> sent, due;  // not yet received by b, not yet by a
    int value = 0;
    for (int step = 0; step < 3000; ++step) {
      switch (random() % 3) {
        case 0: {
          const auto message = filled(random() % 2 == 0 ? 100 : slice, ++value % 251);
          if (rings.there.writer.try_push({}, message, random() % 2 == 0) > 0) sent.push_back(message);
          break;
        }
        case 1: {
          const ConstBytes view = rings.b_reads.peek();
          if (view.empty()) {
            ASSERT_TRUE(sent.empty());
            break;
          }
          ASSERT_TRUE(std::ranges::equal(view, sent.front()));
          const bool answers = random() % 2 == 0 && rings.back.writer.has_room();
          if (answers && !rings.b_reads.answerable(view).empty()) {
            due.push_back(filled(view.size(), ++value % 251));
            rings.answer(due.back().front());
          } else if (answers) {
            due.push_back(filled(200, ++value % 251));
            rings.back.writer.try_push({}, due.back());
            rings.b_reads.pop(view.size());
          } else {
            rings.b_reads.pop(view.size());
          }
          sent.erase(sent.begin());
          break;
        }
        default: {
          const ConstBytes view = rings.a_reads.peek();
          ASSERT_EQ(view.empty(), due.empty());
          if (view.empty()) break;
          ASSERT_TRUE(std::ranges::equal(view, due.front())) << "seed " << seed << ", step " << step;
          rings.a_reads.pop(view.size());
          due.erase(due.begin());
        }
      }
    }
  }
}

TEST(Answers, ThatWereNotAskedForAreRefused) {
  const auto refused = [](bool asks, const AnswerPlace& place) {
    TwoRings rings;
    rings.there.writer.try_push({}, filled(1000, 1), asks);
    rings.back.writer.push_answer({}, place);
    EXPECT_THROW(rings.a_reads.peek(), Error) << asks << " " << place.message << " " << place.offset;
  };
  refused(false, {.message = 0, .offset = 0, .bytes = 1000});
  refused(true, {.message = 1, .offset = 0, .bytes = 1000});
  refused(true, {.message = 8, .offset = 0, .bytes = 1000});
  refused(true, {.message = 0u - 8, .offset = 0, .bytes = 1000});
  refused(true, {.message = 0, .offset = 0, .bytes = 999});
  refused(true, {.message = 0, .offset = 1001, .bytes = 0u - 1});
  refused(true, {.message = 0, .offset = 1000, .bytes = 0});
  TwoRings twice;
  twice.there.writer.try_push({}, filled(1000, 1), true);
  for (int i = 0; i < 2; ++i) twice.back.writer.push_answer({}, {.message = 0, .offset = 0, .bytes = 1000});
  EXPECT_EQ(twice.a_reads.peek().size(), 1000u);
  twice.a_reads.pop(1000);
  EXPECT_THROW(twice.a_reads.peek(), Error);
  RingReader without(twice.back.memory);
  EXPECT_THROW(without.peek(), Error) << "it has no way back";
}

TEST(Answers, OfATransportGoOverTheSameMemory) {
  auto world = loopback_world(2);
  AnswersInPlace* const asker = world[0]->answers_in_place();
  AnswersInPlace* const answerer = world[1]->answers_in_place();
  ASSERT_TRUE(asker != nullptr && answerer != nullptr);
  ASSERT_EQ(asker->try_ask(1, 3, {}, filled(slice, 1)), slice);
  const ConstBytes view = world[1]->try_recv(0, 3, {});
  const Bytes place = answerer->answerable(0, 3, view);
  ASSERT_EQ(place.size(), slice);
  place[5] = std::byte{42};
  answerer->answer(0, 3, filled(8, 2), place);
  EXPECT_EQ(world[0]->try_recv(1, 3, {}).size(), 8u);
  world[0]->release(1, 3, 8);
  const ConstBytes answer = world[0]->try_recv(1, 3, {});
  EXPECT_EQ(answer.data(), view.data());
  EXPECT_EQ(answer[5], std::byte{42});
}

}  // namespace
}  // namespace ranvier::transport
