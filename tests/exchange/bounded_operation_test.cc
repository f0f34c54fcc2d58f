// The operation over messages that exist only as what is said of them: when it goes on, whatever the machine's pace.
#include "engine/bounded_operation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "engine/calls.h"
#include "engine/spread.h"

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Of a rank whose averages, all 7, are here since a time, and whose shares never come.
class AveragesAlone final : public PartialMessages {
 public:
  Arrival::Time average_at{};               // the epoch: not here either
  std::size_t pieces_that_come = SIZE_MAX;  // of an average, its first ones
  std::map<std::uint64_t, std::size_t> expected;

  void send_once(Rank, std::uint64_t, ConstBytes, Pieces) override {}
  void withdraw(Rank, std::uint64_t) override {}
  void send_whole(Rank, std::uint64_t, ConstBytes, std::shared_ptr<const void>, std::span<const Pieces>) override {}
  void expect(Rank, std::uint64_t ticket, std::size_t bytes) override { expected[ticket] = bytes; }
  Arrival arrival(Rank, std::uint64_t ticket, std::size_t bytes) override {
    EXPECT_EQ(expected[ticket], bytes);
    if (!is_here(ticket)) return {};
    const std::size_t all = pieces_of(bytes);
    return {.pieces = std::min(all, pieces_that_come),
            .first_at = average_at,
            .newest_at = average_at,
            .end = std::min(all, pieces_that_come),
            .last_is_here = pieces_that_come >= all};
  }
  ConstBytes look_at(Rank, std::uint64_t ticket, std::size_t bytes, std::vector<std::uint8_t>& arrived) override {
    arrived.assign(pieces_of(bytes), 0);
    if (is_here(ticket)) std::fill_n(arrived.begin(), std::min(arrived.size(), pieces_that_come), std::uint8_t{1});
    return {};
  }
  Message take(Rank from, std::uint64_t ticket, std::size_t bytes) override {
    Message message;
    message.bytes.resize(pieces_of(bytes) * piece_bytes);
    look_at(from, ticket, bytes, message.arrived);
    message.pieces = static_cast<std::size_t>(std::ranges::count(message.arrived, std::uint8_t{1}));
    std::vector<float> sevens(message.pieces * piece_bytes / sizeof(float), 7);
    std::ranges::copy(std::as_bytes(std::span(sevens)), message.bytes.begin());
    return message;
  }
  void give_back(Rank, Message) override {}

 private:
  bool is_here(std::uint64_t ticket) const { return ticket % 2 == 1 && average_at != Arrival::Time{}; }
};

// Of a rank whose share comes piece by piece, all zeros, but for one that is lost; what is sent to it is noted.
class ShareThatComes final : public PartialMessages {
 public:
  static constexpr std::size_t lost = 5;
  std::size_t here = 0;             // with the lost one
  std::vector<std::uint32_t> sent;  // the pieces of the average, in order

  void send_once(Rank, std::uint64_t, ConstBytes, Pieces) override {}
  void withdraw(Rank, std::uint64_t) override {}
  void send_whole(Rank, std::uint64_t, ConstBytes message, std::shared_ptr<const void>,
                  std::span<const Pieces> pieces) override {
    average = message;
    for (const auto& [first, count] : pieces)
      for (std::size_t i = 0; i < count; ++i) sent.push_back(static_cast<std::uint32_t>(first + i));
  }
  float average_of(std::size_t piece) const {
    float value;
    std::memcpy(&value, average.data() + piece * piece_bytes, sizeof value);
    return value;
  }
  void expect(Rank, std::uint64_t, std::size_t) override {}
  Arrival arrival(Rank, std::uint64_t ticket, std::size_t bytes) override {
    if (ticket % 2 != 0 || here == 0) return {};
    return {.pieces = here - (here > lost ? 1 : 0),
            .first_at = Clock::now() - 1h,
            .newest_at = Clock::now(),
            .end = here,
            .last_is_here = here == pieces_of(bytes)};
  }
  ConstBytes look_at(Rank, std::uint64_t, std::size_t bytes, std::vector<std::uint8_t>& arrived) override {
    memory.resize(bytes);
    arrived.assign(pieces_of(bytes), 0);
    for (std::size_t piece = 0; piece < here; ++piece) arrived[piece] = piece != lost;
    return memory;
  }
  Message take(Rank from, std::uint64_t ticket, std::size_t bytes) override {
    Message message;
    look_at(from, ticket, bytes, message.arrived);
    message.bytes = memory;
    message.pieces = here - 1;
    return message;
  }
  void give_back(Rank, Message) override {}

 private:
  std::vector<std::byte> memory;
  ConstBytes average;
};

// Of rank 0 of two, by which those are made that are tested.
struct Rank0 {
  static constexpr Rank world = 2;

  explicit Rank0(double loss) : tools(std::make_shared<BoundedTools>(messages, loss, 100, world)) {}

  BoundedOperation next() { return {tools, BoundedOperation::call_of(calls, request), request, number++, 0, world}; }

  AveragesAlone messages;
  std::shared_ptr<BoundedTools> tools;
  Calls calls{{.world = world, .algorithm = "auto", .slice_bytes = 4096, .buffered_bytes = 4096}};
  std::vector<std::unique_ptr<Transport>> transports = loopback_world(world);
  std::vector<float> values = std::vector<float>(70'000, 1), result = values, lost = values;
  const Request request{.input = values,
                        .output = result,
                        .op = ReduceOp::average,
                        .tolerates_loss = true,
                        .may_differ = true,
                        .lost = lost};
  std::uint64_t number = 0;
};

// It has stalled for ten operations, and rank 1 went on and has withdrawn what it had for it.
TEST(BoundedOperation, ARankThatCatchesUpWaitsForNoShareWhoseSenderHasGoneOn) {
  Rank0 rank(0.01);
  ASSERT_TRUE(BoundedOperation::serves(rank.request, Rank0::world));
  rank.messages.average_at = Clock::now() - 1s;
  for (int missed = 0; missed < 10; ++missed)
    EXPECT_EQ(rank.next().advance(*rank.transports[0], false), Progress::done) << "it waits in operation " << missed;

  // Nor has it learned from them how long shares take: with one that may still come it has the patience of the start.
  rank.messages.average_at = {};
  BoundedOperation fresh = rank.next();
  const auto before = Clock::now();
  EXPECT_NE(fresh.advance(*rank.transports[0], false), Progress::done);
  EXPECT_GE(fresh.due(), before + Patience::first_deadline);
  EXPECT_LE(fresh.due(), Clock::now() + Patience::first_deadline);
}

// The sender of what nobody has asked for stops at its credit: no operation that is started waits until others have
// got so far that theirs is asked for.
TEST(BoundedOperation, WhatIsStartedAsksForAllItsMessagesWhateverIsBeforeIt) {
  for (const std::uint64_t first : {std::uint64_t{0}, (std::uint64_t{1} << 31) - 4}) {
    Rank0 rank(0.01);
    rank.number = first;
    std::vector<std::unique_ptr<BoundedOperation>> started;
    for (std::size_t count = 1; count <= 9; ++count) {
      started.push_back(std::make_unique<BoundedOperation>(rank.tools,
                                                           BoundedOperation::call_of(rank.calls, rank.request),
                                                           rank.request, rank.number++, 0, Rank0::world));
      const std::map<std::uint64_t, std::size_t>& asked = rank.messages.expected;
      ASSERT_EQ(asked.size(), 2 * count);
      EXPECT_EQ(asked.rbegin()->first, 2 * (first + count) - 1) << "no ticket is left out";
    }
    EXPECT_NE(started[0]->advance(*rank.transports[0], false), Progress::done);
  }
}

TEST(BoundedOperation, AveragesLeaveWhileTheShareStillComes) {
  Rank0 rank(0.1);
  ShareThatComes messages;
  const auto tools = std::make_shared<BoundedTools>(messages, 0.1, 100, Rank0::world);
  BoundedOperation operation(tools, BoundedOperation::call_of(rank.calls, rank.request), rank.request, 0, 0,
                             Rank0::world);
  const SpreadLayout layout(rank.values.size(), Rank0::world);
  std::vector<std::uint32_t> expected;
  const auto expect_sent = [&](std::size_t begin, std::size_t end) {
    for (std::size_t piece = begin; piece < end; ++piece)
      if (piece != ShareThatComes::lost) expected.push_back(static_cast<std::uint32_t>(piece));
    operation.advance(*rank.transports[0], false);
    EXPECT_EQ(messages.sent, expected);
  };
  expect_sent(0, 0);
  messages.here = 3;
  expect_sent(0, 3);
  messages.here = 20;
  expect_sent(3, 20);
  // The rest leaves when it is known what is lost: first the piece itself, of which there is only this rank's.
  messages.here = layout.part_pieces();
  operation.advance(*rank.transports[0], false);
  std::vector<std::uint32_t> sorted = messages.sent;
  std::ranges::sort(sorted);
  for (std::uint32_t piece = 0; piece < sorted.size(); ++piece) ASSERT_EQ(sorted[piece], piece) << "once each";
  EXPECT_GT(sorted.size(), layout.part_pieces());
  const auto at = std::ranges::find(messages.sent, std::uint32_t{ShareThatComes::lost}) - messages.sent.begin();
  EXPECT_EQ(static_cast<std::size_t>(at), layout.part_pieces() - 1);
  std::vector<float> own(layout.part_values);
  spread_out(std::span(rank.values).first(layout.part_values), own, 0);
  EXPECT_FLOAT_EQ(messages.average_of(ShareThatComes::lost), own[ShareThatComes::lost * values_a_piece]);
  EXPECT_FLOAT_EQ(messages.average_of(0), own[0] / 2);
}

// An average comes, but not which values were missing in it: what this rank gave may not be in it, and would not be
// owed either. So it takes its own for all of that part.
TEST(BoundedOperation, AnAverageOfWhichNobodyKnowsWhatIsInItIsNotTaken) {
  Rank0 rank(1);
  rank.messages.average_at = Clock::now() - 1s;
  rank.messages.pieces_that_come = SpreadLayout(rank.values.size(), Rank0::world).part_pieces();
  BoundedOperation operation = rank.next();
  const auto limit = Clock::now() + 60s;
  while (operation.advance(*rank.transports[0], false) != Progress::done && Clock::now() < limit)
    std::this_thread::sleep_for(1ms);
  for (std::size_t i = 0; i < rank.values.size(); ++i)
    ASSERT_NEAR(rank.result[i] + rank.lost[i], rank.values[i], 1e-4) << i;
}

}  // namespace
}  // namespace ranvier::engine
