// A whole world of rings inside this process: lanes, sleep, interruption, cancellation.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/streams.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto far_too_long = 20s;  // a wake-up that takes this long was lost

ConstBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::size_t send(Transport& transport, Rank to, Lane lane) { return transport.try_send(to, lane, {}, bytes_of("x")); }

std::size_t receive(Transport& transport, Rank from, Lane lane) {
  const std::size_t bytes = transport.try_recv(from, lane, {}).size();
  if (bytes > 0) transport.release(from, lane, bytes);
  return bytes;
}

// Repeats `step` until it says true, with a wait between; false when a wait lasted until its end.
bool until(Transport& transport, auto step) {
  while (!step()) {
    const auto start = Clock::now();
    transport.wait(far_too_long);
    if (Clock::now() - start >= far_too_long) return false;
  }
  return true;
}

class Loopback : public ::testing::TestWithParam<Rank> {};

TEST_P(Loopback, CarriesEveryStreamInOrderCompleteAndOnce) {
  auto world = loopback_world(GetParam());
  std::vector<std::thread> ranks;
  for (auto& transport : world)
    ranks.emplace_back([&] { testing::exchange_streams(*transport, GetParam() <= 2 ? 1'000'000 : 150'000, 5); });
  for (auto& rank : ranks) rank.join();
}

INSTANTIATE_TEST_SUITE_P(Worlds, Loopback, ::testing::Values(1, 2, 3, 5, 8), ::testing::PrintToStringParamName());

TEST(LoopbackTraits, ASliceWithAHeadTakesOneOfEightSlots) {
  auto world = loopback_world(2);
  const TransportTraits traits = world[0]->traits();
  const std::vector<std::byte> head(64);
  const std::vector<std::byte> slice(traits.slice_bytes);
  ASSERT_EQ(traits.buffered_bytes, traits.slice_bytes);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(world[0]->try_send(1, 0, head, slice), head.size() + slice.size());
  EXPECT_EQ(world[0]->try_send(1, 0, head, slice), 0u);
}

TEST(LoopbackTraits, LargeWorldsHaveSmallerSlices) {
  EXPECT_EQ(loopback_world(8)[0]->traits().slice_bytes, 128u << 10);
  EXPECT_EQ(loopback_world(64)[0]->traits().slice_bytes, 16u << 10);
}

TEST(LoopbackLanes, AFullLaneBlocksNoOther) {
  auto world = loopback_world(3);
  while (send(*world[0], 1, 0) > 0) continue;
  for (Lane lane = 1; lane < lane_count; ++lane) EXPECT_EQ(send(*world[0], 1, lane), 1u);
  EXPECT_EQ(send(*world[0], 2, 0), 1u);
  EXPECT_EQ(send(*world[1], 0, 0), 1u);
  EXPECT_EQ(receive(*world[1], 0, message_lane), 1u);
}

TEST(LoopbackLanes, RefusesRanksAndLanesThatDoNotExist) {
  auto world = loopback_world(2);
  EXPECT_THROW(send(*world[0], 2, 0), Error);
  EXPECT_THROW(send(*world[0], -1, 0), Error);
  EXPECT_THROW(send(*world[0], 1, lane_count), Error);
  EXPECT_THROW(loopback_world(0), Error);
}

TEST(LoopbackWait, EveryMessageWakesASleepingReceiver) {
  constexpr int rounds = 3000;
  auto world = loopback_world(2);
  std::atomic<int> failures = 0;
  const auto play = [&](Rank rank) {
    Transport& transport = *world[static_cast<std::size_t>(rank)];
    for (int round = 0; round < rounds && failures == 0; ++round) {
      const Lane lane = static_cast<Lane>(round % lane_count);
      if (rank == 0) send(transport, 1, lane);
      if (!until(transport, [&] { return receive(transport, 1 - rank, lane) > 0; })) ++failures;
      if (rank == 1) send(transport, 0, lane);
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(failures, 0);
}

TEST(LoopbackWait, EveryFreedSlotWakesASleepingSender) {
  constexpr int messages = 10000;
  auto world = loopback_world(2);
  std::atomic<bool> woken = true;
  std::thread sender([&] {
    for (int sent = 0; sent < messages && woken; ++sent)
      woken = until(*world[0], [&] { return send(*world[0], 1, 2) > 0; });
  });
  // The receiver polls, lets the ring run full now and then, and never sleeps: only its releases can wake the sender.
  for (int received = 0; received < messages;) {
    if (received % 64 == 0) std::this_thread::sleep_for(100us);
    const auto got = receive(*world[1], 0, 2);
    received += static_cast<int>(got);
    if (got == 0) std::this_thread::yield();
    if (!woken) break;
  }
  sender.join();
  EXPECT_TRUE(woken);
}

TEST(LoopbackWait, AMessageThatNobodyWantsYetLetsTheReceiverSleep) {
  auto world = loopback_world(2);
  send(*world[0], 1, 3);
  world[1]->wait(far_too_long);  // news
  const auto start = Clock::now();
  world[1]->wait(30ms);
  EXPECT_GE(Clock::now() - start, 25ms);
  send(*world[0], 1, 3);
  EXPECT_TRUE(until(*world[1], [&] { return receive(*world[1], 0, 3) > 0; }));
}

TEST(LoopbackWait, EndsAtItsLimit) {
  auto world = loopback_world(1);
  world[0]->wait(0ns);
  world[0]->wait(-1s);
  world[0]->wait(2ms);
}

TEST(LoopbackWait, AnInterruptBeforeEndsTheNext) {
  auto world = loopback_world(2);
  world[0]->interrupt();
  const auto start = Clock::now();
  world[0]->wait(far_too_long);
  EXPECT_LT(Clock::now() - start, far_too_long);
}

TEST(LoopbackWait, AnInterruptFromAnyThreadEndsThePresent) {
  auto world = loopback_world(2);
  std::atomic<int> asked = 0;
  std::atomic<int> answered = 0;
  std::thread other([&] {
    while (asked.load() < 1000) {
      if (asked.load() == answered.load()) {
        ++asked;
        world[0]->interrupt();
      } else {
        std::this_thread::yield();
      }
    }
  });
  bool woken = true;
  while (answered < 1000 && woken) {
    woken = until(*world[0], [&] { return asked.load() > answered.load(); });
    answered = asked.load();
  }
  asked = 1000;
  other.join();
  EXPECT_TRUE(woken);
}

TEST(LoopbackCancel, CallsThrowAbortedAndWaitsReturn) {
  auto world = loopback_world(2);
  send(*world[1], 0, 0);
  world[0]->cancel();
  try {
    send(*world[0], 1, 0);
    FAIL() << "a send was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::aborted);
  }
  EXPECT_THROW(world[0]->try_recv(1, 0, {}), Error);
  EXPECT_THROW(world[0]->sent(1, 0), Error);
  world[0]->wait(far_too_long);
  world[0]->interrupt();
  world[0]->cancel();
  EXPECT_EQ(send(*world[1], 0, 0), 1u) << "the others are not affected";
}

TEST(LoopbackCancel, ARankMayOutliveTheOthers) {
  auto world = loopback_world(2);
  send(*world[1], 0, 0);
  world[1].reset();
  EXPECT_EQ(receive(*world[0], 1, 0), 1u);
  EXPECT_EQ(send(*world[0], 1, 0), 1u);
}

}  // namespace
}  // namespace ranvier
