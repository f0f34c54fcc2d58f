#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ranvier/error.h"
#include "ranvier/transport.h"
#include "transport/streams.h"
#include "transport/token_bucket.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(TokenBucket, LetsThroughTheRateWhateverThePieces) {
  for (const double rate : {1e3, 25e6, 12.5e9}) {
    const double burst = rate * 0.004;
    const auto largest = static_cast<std::size_t>(rate * 0.002) + 1;
    transport::TokenBucket bucket(rate, burst, Clock::time_point{});
    std::minstd_rand random(11);
    Clock::time_point now{};
    double spent = 0;
    while (now < Clock::time_point{2s}) {
      if (bucket.has_tokens(now)) {
        const std::size_t piece = 1 + random() % largest;
        bucket.spend(piece);
        spent += static_cast<double>(piece);
      } else {
        now += bucket.until_tokens();
        EXPECT_TRUE(bucket.has_tokens(now)) << "until_tokens() is too short";
      }
    }
    EXPECT_GE(spent, 2 * rate * 0.99);
    EXPECT_LE(spent, 2 * rate + burst + 2 * static_cast<double>(largest));
  }
}

TEST(TokenBucket, SavesNoMoreThanABurst) {
  transport::TokenBucket bucket(1000, 10, Clock::time_point{});
  Clock::time_point now{1h};
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(bucket.has_tokens(now));
    bucket.spend(1);
  }
  EXPECT_FALSE(bucket.has_tokens(now));
}

TEST(Paced, SendsNoFasterThanItsRate) {
  constexpr double rate = 10e6;
  constexpr std::size_t bytes = 2'000'000;
  auto world = loopback_world(2);
  auto sender = paced(std::move(world[0]), rate);
  const std::vector<std::byte> data(bytes);
  const auto start = Clock::now();
  for (std::size_t sent = 0, received = 0; received < bytes;) {
    const std::size_t accepted = sent < bytes ? sender->try_send(1, 0, {}, ConstBytes(data).subspan(sent)) : 0;
    EXPECT_LE(accepted, sender->traits().slice_bytes);
    sent += accepted;
    const std::size_t arrived = world[1]->try_recv(0, 0, {}).size();
    world[1]->release(0, 0, arrived);
    received += arrived;
    if (accepted == 0) sender->wait(10s);
  }
  EXPECT_GE(Clock::now() - start, 180ms);
}

// Who always asks first, and as soon as there is room, does not have all of the link.
TEST(Paced, SendsTakeTurns) {
  auto world = loopback_world(3);
  auto sender = paced(std::move(world[0]), 1e5);
  const std::vector<std::byte> large(1 << 20), small(100);
  const auto take = [](Transport& rank, Lane lane) { rank.release(0, lane, rank.try_recv(0, lane, {}).size()); };
  // Until both have been refused. Where this thread has been away meanwhile there is room for the small one, too.
  const auto fill = [&] {
    do {
      while (sender->try_send(1, 0, {}, large) > 0) take(*world[1], 0);
      take(*world[2], 1);
    } while (sender->try_send(2, 1, {}, small) > 0);
  };
  for (int turn = 0; turn < 5; ++turn) {
    fill();
    bool done = false;
    for (int passes = 0; passes < 10 && !done; ++passes) {
      sender->wait(10s);
      sender->try_send(1, 0, {}, large);
      done = sender->try_send(2, 1, {}, small) > 0;
      take(*world[1], 0);  // there is always room
    }
    EXPECT_TRUE(done) << turn;
    take(*world[2], 1);
  }
  // Whoever is alone need not wait for one that came once and comes no more.
  fill();
  std::size_t sent = 0;
  for (int passes = 0; passes < 10 && sent == 0; ++passes) {
    sender->wait(10s);
    sent = sender->try_send(1, 0, {}, large);
  }
  EXPECT_GT(sent, 0U);
}

TEST(Paced, ASliceTakesAFewMillisecondsAtMost) {
  for (const double rate : {2e6, 25e6, 1e12}) {
    auto world = loopback_world(2);
    const auto transport = paced(std::move(world[0]), rate);
    EXPECT_LE(static_cast<double>(transport->traits().slice_bytes) / rate, 0.004);
    EXPECT_LE(transport->traits().slice_bytes, world[1]->traits().slice_bytes);
    EXPECT_EQ(transport->traits().name, "loopback");
  }
}

TEST(Paced, CarriesEveryStreamInOrderCompleteAndOnce) {
  auto world = loopback_world(2);
  std::thread other([&] { testing::exchange_streams(*paced(std::move(world[1]), 50e6), 100'000, 9); });
  testing::exchange_streams(*paced(std::move(world[0]), 50e6), 100'000, 8);
  other.join();
}

TEST(Paced, PassesInterruptionAndCancellationOn) {
  auto world = loopback_world(2);
  const auto transport = paced(std::move(world[0]), 1e6);
  transport->interrupt();
  transport->wait(1h);
  transport->cancel();
  EXPECT_THROW(transport->try_recv(1, 0, {}), Error);
}

TEST(Paced, RefusesARateThatIsNone) {
  for (const double rate : {0.0, -1.0, std::numeric_limits<double>::infinity()})
    EXPECT_THROW(paced(std::move(loopback_world(1)[0]), rate), Error);
}

}  // namespace
}  // namespace ranvier
