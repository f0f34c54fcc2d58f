// The operation over messages that exist only as what is said of them: when it goes on, whatever the machine's pace.
#include "engine/bounded_operation.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/calls.h"

namespace ranvier::engine {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Of a rank whose averages are here since a time, and whose shares never come.
class AveragesAlone final : public PartialMessages {
 public:
  Arrival::Time average_at{};  // the epoch: not here either

  void send_once(Rank, std::uint32_t, ConstBytes) override {}
  void withdraw(Rank, std::uint32_t) override {}
  void send_whole(Rank, std::uint32_t, ConstBytes) override {}
  Arrival arrival(Rank, std::uint32_t ticket, std::size_t bytes) override {
    if (!is_here(ticket)) return {};
    return {.pieces = pieces_of(bytes), .first_at = average_at, .newest_at = average_at, .last_is_here = true};
  }
  void look_at(Rank, std::uint32_t ticket, std::size_t bytes, std::vector<std::uint8_t>& arrived) override {
    arrived.assign(pieces_of(bytes), is_here(ticket) ? 1 : 0);
  }
  Message take(Rank from, std::uint32_t ticket, std::size_t bytes) override {
    Message message;
    message.bytes.resize(pieces_of(bytes) * piece_bytes);
    look_at(from, ticket, bytes, message.arrived);
    message.pieces = is_here(ticket) ? message.arrived.size() : 0;
    return message;
  }
  void give_back(Rank, Message) override {}

 private:
  bool is_here(std::uint32_t ticket) const { return ticket % 2 == 1 && average_at != Arrival::Time{}; }
};

// Rank 0 has stalled for ten operations, and rank 1 went on and has withdrawn what it had for it.
TEST(BoundedOperation, ARankThatCatchesUpWaitsForNoShareWhoseSenderHasGoneOn) {
  constexpr Rank world = 2;
  AveragesAlone messages;
  const auto tools = std::make_shared<BoundedTools>(messages, 0.01, 100, world);
  Calls calls({.world = world, .algorithm = "auto", .slice_bytes = 4096, .buffered_bytes = 4096});
  const auto transports = loopback_world(world);
  std::vector<float> values(20'000, 1);
  const Request request{
      .input = values, .output = values, .op = ReduceOp::average, .tolerates_loss = true, .may_differ = true};
  ASSERT_TRUE(BoundedOperation::serves(request, world));
  std::uint32_t number = 0;
  const auto next = [&] {
    return BoundedOperation(tools, BoundedOperation::call_of(calls, request), request, number++, 0, world);
  };
  messages.average_at = Clock::now() - 1s;
  for (int missed = 0; missed < 10; ++missed)
    EXPECT_EQ(next().advance(*transports[0], false), Progress::done) << "it waits in operation " << missed;

  // Nor has it learned from them how long shares take: with one that may still come it has the patience of the start.
  messages.average_at = {};
  BoundedOperation fresh = next();
  const auto before = Clock::now();
  EXPECT_NE(fresh.advance(*transports[0], false), Progress::done);
  EXPECT_GE(fresh.due(), before + Patience::first_deadline);
  EXPECT_LE(fresh.due(), Clock::now() + Patience::first_deadline);
}

}  // namespace
}  // namespace ranvier::engine
