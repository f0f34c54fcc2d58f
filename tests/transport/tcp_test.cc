// The transports tcp and grpc once their connections stand. What ranks send over it must arrive whatever the kernel
// does: most tests run a second time with a kernel that takes and gives a few bytes at a time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

#include "ranvier/error.h"
#include "support/certificates.h"
#include "support/sanitized.h"
#include "transport/tcp_interposed.h"
#include "transport/tcp_world.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using namespace support;
using Clock = std::chrono::steady_clock;

ConstBytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string text_of(ConstBytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// The next view that is at least `size` long.
ConstBytes wait_for_view(Transport& transport, Rank from, Lane lane, std::size_t size) {
  std::size_t seen = 0;
  for (const auto deadline = Clock::now() + tcp_patience; Clock::now() < deadline;) {
    const ConstBytes view = transport.try_recv(from, lane, {});
    if (view.size() >= size) return view;
    if (view.size() == std::exchange(seen, view.size())) transport.wait(10ms);
  }
  ADD_FAILURE() << "no view of " << size << " B in time";
  return {};
}

std::string read_text(Transport& transport, Rank from, Lane lane, std::size_t size) {
  std::string text = text_of(wait_for_view(transport, from, lane, size).first(size));
  transport.release(from, lane, size);
  return text;
}

// Byte `offset` of what `from` sends `to` on `lane`: any loss, repetition or mix-up shows.
std::byte expected_byte(Rank from, Rank to, Lane lane, std::size_t offset) {
  const std::size_t mixed =
      (offset + 1) * 0x9e3779b97f4a7c15 + static_cast<std::size_t>(from * 64 + to * 8 + lane) * 0xbf58476d1ce4e5b9;
  return static_cast<std::byte>(mixed >> 56);
}

// Both directions between this rank and one peer on one lane, in pieces of random size.
class Stream {
 public:
  // `most`: how many bytes are offered, or asked for, at once.
  Stream(Transport& transport, Rank peer, Lane lane, std::size_t bytes, std::size_t most, std::mt19937& random)
      : transport_(transport), peer_(peer), lane_(lane), bytes_(bytes), random_(random), memory_(most) {}

  bool push() {
    const std::size_t offered = some(std::min(memory_.size(), bytes_ - sent_));
    for (std::size_t i = 0; i < offered; ++i) memory_[i] = expected_byte(transport_.rank(), peer_, lane_, sent_ + i);
    const std::size_t head = some(std::min<std::size_t>(offered, 64));
    const std::size_t accepted = transport_.try_send(peer_, lane_, ConstBytes(memory_).first(head),
                                                     ConstBytes(memory_).subspan(head, offered - head));
    EXPECT_TRUE(accepted == 0 || (head <= accepted && accepted <= offered)) << head << " " << accepted;
    sent_ += accepted;
    return accepted > 0;
  }

  bool pull() {
    const Bytes wanted = Bytes(memory_).first(some(1) * some(std::min(memory_.size(), bytes_ - received_)));
    const ConstBytes view = transport_.try_recv(peer_, lane_, wanted);
    const bool direct = !view.empty() && view.data() == wanted.data();
    EXPECT_TRUE(!direct || view.size() <= wanted.size());
    const std::size_t used = direct ? view.size() : some(view.size());
    for (std::size_t i = 0; i < used; ++i)
      intact_ = intact_ && view[i] == expected_byte(peer_, transport_.rank(), lane_, received_ + i);
    if (!direct) transport_.release(peer_, lane_, used);
    received_ += used;
    return used > 0;
  }

  bool done() const { return sent_ == bytes_ && received_ == bytes_ && transport_.sent(peer_, lane_); }
  bool intact() const { return intact_; }

 private:
  std::size_t some(std::size_t most) { return std::uniform_int_distribution<std::size_t>(0, most)(random_); }

  Transport& transport_;
  Rank peer_;
  Lane lane_;
  std::size_t bytes_;
  std::mt19937& random_;
  std::vector<std::byte> memory_;
  std::size_t sent_ = 0;
  std::size_t received_ = 0;
  bool intact_ = true;
};

void exchange_on_all_lanes(Transport& transport, std::size_t bytes, std::size_t most = 200'000) {
  std::mt19937 random(static_cast<unsigned>(transport.rank()));
  std::vector<Stream> streams;
  for (Rank peer = 0; peer < transport.world(); ++peer)
    for (Lane lane = 0; lane < lane_count && peer != transport.rank(); ++lane)
      streams.emplace_back(transport, peer, lane, bytes, most, random);
  for (auto deadline = Clock::now() + tcp_patience;;) {  // of the next byte: a slow machine moves few at a time
    bool moved = false;
    for (Stream& stream : streams) {
      moved = stream.push() || moved;
      moved = stream.pull() || moved;
    }
    if (std::ranges::all_of(streams, &Stream::done)) break;
    if (moved) {
      deadline = Clock::now() + tcp_patience;
      continue;
    }
    ASSERT_LT(Clock::now(), deadline);
    transport.wait(10ms);
  }
  EXPECT_TRUE(std::ranges::all_of(streams, &Stream::intact));
}

class Tcp : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::unique_ptr<Transport>> world(Rank ranks, int sockets = 1, bool encrypted = false) {
    TcpOptions options{.sockets = sockets};
    if (GetParam() == "tcp") {
      options.security.encrypt_everywhere = encrypted;
      return connect_all(endpoints_of(tcp_endpoint, ranks, options));
    }
    if (!encrypted) return connect_all(endpoints_of(grpc_endpoint, ranks, options));
    const Certificates made;
    made.add("one", "ours");
    options.security = made.options("one");
    options.security.encrypt_everywhere = true;
    return connect_all(endpoints_of(grpc_endpoint, ranks, options));
  }
  static void fill_a_lane(int sockets, bool encrypted);
  static void fill_and_drain_a_lane(int sockets, bool encrypted);
  static void expect_no_allocations(int sockets);
};
INSTANTIATE_TEST_SUITE_P(Transports, Tcp, testing::Values("tcp", "grpc"),
                         [](const auto& tested) { return tested.param; });

TEST_P(Tcp, EveryLaneDeliversEveryByteOnceAndInOrder) {
  for (const bool encrypted : {false, true})
    for (const auto& [world, sockets] : {std::pair{2, 1}, std::pair{4, 1}, std::pair{2, 3}}) {
      const auto transports = Tcp::world(world, sockets, encrypted);
      on_threads(world,
                 [&](Rank rank) { exchange_on_all_lanes(*transports[static_cast<std::size_t>(rank)], 400'000); });
    }
}

// What is offered is more than it takes, but no more than that: making it anew each time took most of the time.
TEST_P(Tcp, EveryLaneDeliversEveryByteThoughTheKernelTakesAndGivesAFewAtATime) {
  constexpr std::size_t most = 4'000;
  const auto exchange = [](Transport& transport, std::size_t bytes) { exchange_on_all_lanes(transport, bytes, most); };
  for (const bool encrypted : {false, true}) {
    {
      const auto transports = Tcp::world(3, 1, encrypted);
      const StingyKernel stingy;
      on_threads(3, [&](Rank rank) { exchange(*transports[static_cast<std::size_t>(rank)], 10'000); });
    }
    const auto transports = Tcp::world(2, 3, encrypted);  // enough for every socket to have its turn
    const StingyKernel stingy;
    const std::size_t bytes = support::sanitized ? 10'000 : 140'000;
    on_threads(2, [&](Rank rank) { exchange(*transports[static_cast<std::size_t>(rank)], bytes); });
  }
}

TEST_P(Tcp, AHeadThatTheKernelTookInPartIsSentWithoutAnotherTrySend) {
  const auto world = Tcp::world(2, 3);
  const StingyKernel stingy;
  std::string sent;
  for (int i = 0; i < 1500; ++i) {  // one of them lies across the border of two sockets
    const std::string head(60, static_cast<char>('a' + i % 26));
    while (world[0]->try_send(1, 0, bytes_of(head), {}) == 0) world[0]->wait(1ms);
    sent += head;
  }
  while (!world[0]->sent(1, 0)) world[0]->wait(1ms);
  EXPECT_EQ(read_text(*world[1], 0, 0, sent.size()), sent);
}

TEST_P(Tcp, AViewGrowsUntilTheCallerCanUseIt) {
  const auto world = Tcp::world(2);
  world[0]->try_send(1, 2, {}, bytes_of("abc"));
  EXPECT_EQ(text_of(wait_for_view(*world[1], 0, 2, 3)), "abc");
  world[0]->try_send(1, 2, bytes_of("de"), bytes_of("fgh"));
  EXPECT_EQ(text_of(wait_for_view(*world[1], 0, 2, 8)), "abcdefgh");
  world[1]->release(0, 2, 6);
  EXPECT_EQ(text_of(world[1]->try_recv(0, 2, {})), "gh");
}

TEST_P(Tcp, AViewReturnedWithoutALookAtTheSocketDoesNotLetAWaiterOversleep) {
  const auto world = Tcp::world(2);
  const auto start = Clock::now();
  world[0]->try_send(1, 0, {}, bytes_of("ten bytes!"));
  wait_for_view(*world[1], 0, 0, 10);
  world[0]->try_send(1, 0, {}, bytes_of(" and the rest"));
  world[1]->wait(100ms);  // told of the rest, and of nothing more to come
  world[1]->wait(100ms);
  world[1]->release(0, 0, 2);
  EXPECT_EQ(text_of(world[1]->try_recv(0, 0, {})), "n bytes!");
  world[1]->wait(tcp_patience);
  EXPECT_EQ(text_of(wait_for_view(*world[1], 0, 0, 21)), "n bytes! and the rest");
  EXPECT_LT(Clock::now(), start + tcp_patience);
}

void Tcp::fill_a_lane(int sockets, bool encrypted) {
  auto world = Tcp::world(2, sockets, encrypted);
  const TransportTraits traits = world[0]->traits();
  const std::vector<std::byte> slice(traits.slice_bytes);
  std::size_t accepted = 0;
  for (int refusals = 0; refusals < 20;) {
    const std::size_t now = world[0]->try_send(1, 1, {}, slice);
    accepted += now;
    if (now > 0) continue;
    ++refusals;
    world[0]->wait(10ms);
  }
  EXPECT_GE(accepted, traits.buffered_bytes);
  for (Lane lane = 0; lane < lane_count; ++lane) {
    if (lane == 1) continue;
    EXPECT_EQ(world[0]->try_send(1, lane, {}, bytes_of("free")), 4U);
    EXPECT_EQ(read_text(*world[1], 0, lane, 4), "free");
  }
  world[1].reset();  // first, so that nobody waits for it to read
}

TEST_P(Tcp, AFullLaneHoldsWhatItsTraitsPromiseAndDoesNotBlockTheOthers) {
  for (const bool encrypted : {false, true})
    for (const int sockets : {1, 4}) fill_a_lane(sockets, encrypted);
}

void Tcp::fill_and_drain_a_lane(int sockets, bool encrypted) {
  const auto world = Tcp::world(2, sockets, encrypted);
  const std::vector<std::byte> slice(1 << 20);
  std::size_t filled = 0;
  for (int vain = 0; vain < 2;) {
    const std::size_t accepted = world[0]->try_send(1, 0, {}, slice);
    filled += accepted;
    vain = accepted > 0 ? 0 : vain + 1;
    if (accepted == 0) world[0]->wait(10ms);
  }
  // Everything is read: that what is left over fits where the lane was full before is not promised.
  std::jthread reader([&, filled] {
    for (std::size_t left = filled + (std::size_t{64} << 20); left > 0;) {
      const ConstBytes view = wait_for_view(*world[1], 0, 0, 1);
      if (view.empty()) return;
      world[1]->release(0, 0, view.size());
      left -= std::min(left, view.size());
    }
  });
  const auto deadline = Clock::now() + tcp_patience;
  for (std::size_t left = std::size_t{64} << 20; left > 0;) {
    const std::size_t accepted = world[0]->try_send(1, 0, {}, slice);
    left -= std::min(left, accepted);
    if (accepted == 0) world[0]->wait(tcp_patience);  // a wake-up that is missed takes all the time there is
    ASSERT_LT(Clock::now(), deadline);
  }
  // What was encrypted and the kernel did not take yet leaves when this rank looks again.
  while (!world[0]->sent(1, 0)) {
    world[0]->wait(tcp_patience);
    ASSERT_LT(Clock::now(), deadline);
  }
}

TEST_P(Tcp, AFullLaneWakesItsSenderWhenThereIsRoom) {
  for (const bool encrypted : {false, true})
    for (const int sockets : {1, 4}) fill_and_drain_a_lane(sockets, encrypted);
}

TEST_P(Tcp, UnreadBytesThatNobodyWantsYetDoNotKeepAWaiterAwake) {
  const auto world = Tcp::world(2);
  world[0]->try_send(1, 3, {}, bytes_of("for later"));
  for (const auto start = Clock::now(); Clock::now() < start + 100ms;) world[1]->wait(100ms);
  int returns = 0;
  for (const auto start = Clock::now(); Clock::now() < start + 200ms; ++returns) world[1]->wait(20ms);
  EXPECT_LE(returns, 12);
  EXPECT_EQ(read_text(*world[1], 0, 3, 9), "for later");
}

TEST_P(Tcp, CountsTheSegmentsOfItsData) {
  const auto world = Tcp::world(2, 3);
  const auto before = world[0]->packet_counts();
  ASSERT_TRUE(before);
  on_threads(2, [&](Rank rank) { exchange_on_all_lanes(*world[static_cast<std::size_t>(rank)], 100'000); });
  const auto after = world[0]->packet_counts();
  ASSERT_TRUE(after);
  EXPECT_GE(after->sent - before->sent, lane_count * (100'000 / 65'536));  // of at most 64 KiB each
  EXPECT_LE(after->lost, after->sent);
}

TEST_P(Tcp, InterruptEndsTheNextWait) {
  const auto world = Tcp::world(2);
  const auto start = Clock::now();
  std::atomic<bool> called = false;
  std::jthread other([&] {
    std::this_thread::sleep_for(20ms);
    called = true;
    world[0]->interrupt();
  });
  while (!called) world[0]->wait(tcp_patience);
  other.join();
  world[0]->interrupt();
  world[0]->wait(tcp_patience);
  EXPECT_LT(Clock::now(), start + tcp_patience);
}

// Fills a lane until neither kernel has room; how many bytes it took.
std::size_t fill(Transport& from, Rank to, Lane lane) {
  const std::vector<std::byte> much(1'000'000, std::byte{7});
  std::size_t sent = 0;
  for (int refusals = 0; refusals < 5;) {
    const std::size_t accepted = from.try_send(to, lane, {}, much);
    sent += accepted;
    if (accepted > 0) continue;
    ++refusals;
    from.wait(10ms);
  }
  return sent;
}

// Until `from` has closed its connection; how many bytes came before that, and what is said of it.
std::pair<std::size_t, std::string> read_to_the_end(Transport& transport, Rank from, Lane lane) {
  std::size_t received = 0;
  try {
    for (const auto deadline = Clock::now() + tcp_patience; Clock::now() < deadline;) {
      const ConstBytes view = transport.try_recv(from, lane, {});
      received += view.size();
      transport.release(from, lane, view.size());
      if (view.empty()) transport.wait(10ms);
    }
    ADD_FAILURE() << "the end was not noticed";
    return {received, ""};
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
    EXPECT_EQ(error.culprit(), from);
    return {received, error.what()};
  }
}

// Its kernel has most of that still when it leaves, and answers whatever comes for a closed socket with a reset.
TEST_P(Tcp, WhatARankSentBeforeItLeftIsDeliveredAndThenItIsNamed) {
  for (const bool encrypted : {false, true}) {
    auto world = Tcp::world(3, 1, encrypted);
    world[0]->try_send(2, 0, {}, bytes_of("never read"));
    const std::size_t sent = fill(*world[2], 0, 0);
    ASSERT_GT(sent, 0U);
    std::atomic<bool> has_left = false;
    const std::jthread leaver([&] {
      world[2]->close();
      world[2].reset();
      has_left = true;
    });
    for (const auto until = Clock::now() + 100ms; !has_left && Clock::now() < until;) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(world[0]->try_send(2, 0, {}, bytes_of("too late")), 8U);
    const auto [received, told] = read_to_the_end(*world[0], 2, 0);
    EXPECT_EQ(received, sent) << (encrypted ? "encrypted" : "plain");
    EXPECT_THAT(told, testing::HasSubstr("rank 2 closed its " + GetParam() + " connection to rank 0"));
    // The others go on.
    world[0]->try_send(1, 0, {}, bytes_of("still here"));
    EXPECT_EQ(read_text(*world[1], 0, 0, 10), "still here");
  }
}

TEST_P(Tcp, ARankLeavesThoughNobodyReadsWhatItSent) {
  auto world = Tcp::world(3, 1, true);
  for (const Rank peer : {0, 1})
    for (Lane lane = 0; lane < 2; ++lane) fill(*world[2], peer, lane);
  world[2].reset();
  world[0]->try_send(1, 0, {}, bytes_of("still here"));
  EXPECT_EQ(read_text(*world[1], 0, 0, 10), "still here");
}

TEST_P(Tcp, SendingToARankThatLeftNamesIt) {
  auto world = Tcp::world(2);
  world[1].reset();
  try {
    for (const auto deadline = Clock::now() + tcp_patience; Clock::now() < deadline;)
      if (world[0]->try_send(1, 0, {}, bytes_of("hello")) == 0) world[0]->wait(10ms);
    FAIL() << "the end was not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
    EXPECT_EQ(error.culprit(), 1);
  }
}

TEST_P(Tcp, AfterCancelNothingMovesAndTheOtherSideSeesTheEnd) {
  const auto world = Tcp::world(2);
  world[0]->try_send(1, 0, {}, bytes_of("last"));
  world[0]->cancel();
  EXPECT_THROW(world[0]->try_send(1, 0, {}, bytes_of("more")), Error);
  EXPECT_THROW(world[0]->try_recv(1, 0, {}), Error);
  world[0]->wait(tcp_patience);
  EXPECT_EQ(read_text(*world[1], 0, 0, 4), "last");
  EXPECT_THROW(wait_for_view(*world[1], 0, 0, 1), Error);
}

// Peers that are lost do not take what is left, and nobody is to wait for that when all is given up.
TEST_P(Tcp, WhoHasCancelledLeavesAtOnceThoughNobodyReadsWhatItSent) {
  auto world = Tcp::world(2, 1, true);
  fill(*world[0], 1, 0);
  world[0]->cancel();
  const auto begin = Clock::now();
  world[0].reset();
  EXPECT_LT(Clock::now() - begin, 1s) << "it waits for 2 s";
}

TEST_P(Tcp, WhatIsNotThereIsRefused) {
  const auto world = Tcp::world(2);
  EXPECT_THROW(world[0]->try_send(0, 0, {}, bytes_of("to itself")), Error);
  EXPECT_THROW(world[0]->try_send(2, 0, {}, bytes_of("beyond the world")), Error);
  EXPECT_THROW(world[0]->try_send(-1, 0, {}, bytes_of("before it")), Error);
  EXPECT_THROW(world[0]->try_recv(1, lane_count, {}), Error);
  EXPECT_THROW(world[0]->release(1, 0, 1), Error);
}

TEST_P(Tcp, LanesThatTakeTurnsShareOneReceiveBuffer) {
  const auto world = Tcp::world(3);
  std::vector<const std::byte*> views;
  for (Rank from = 1; from < 3; ++from)
    for (Lane lane = 0; lane < lane_count; ++lane) {
      world[static_cast<std::size_t>(from)]->try_send(0, lane, {}, bytes_of("hot"));
      views.push_back(wait_for_view(*world[0], from, lane, 3).data());
      world[0]->release(from, lane, 3);
    }
  EXPECT_THAT(views, testing::Each(views.front()));
  // Those that are held at once do not.
  for (Lane lane = 0; lane < lane_count; ++lane) {
    const std::string text(2000, static_cast<char>('a' + lane));
    world[1]->try_send(0, lane, {}, bytes_of(text));
    wait_for_view(*world[0], 1, lane, text.size());
  }
  for (Lane lane = 0; lane < lane_count; ++lane)
    EXPECT_EQ(read_text(*world[0], 1, lane, 2000), std::string(2000, static_cast<char>('a' + lane)));
}

void Tcp::expect_no_allocations(int sockets) {
  const auto world = Tcp::world(2, sockets);
  std::vector<std::byte> memory(100'000);
  const auto round = [&] {
    for (Lane lane = 0; lane < lane_count; ++lane) {
      world[0]->try_send(1, lane, ConstBytes(memory).first(24), memory);
      for (std::size_t received = 0; received < memory.size() + 24;) {
        const ConstBytes view = world[1]->try_recv(0, lane, received % 2 == 0 ? Bytes() : Bytes(memory));
        if (view.data() != memory.data()) world[1]->release(0, lane, view.size());
        received += view.size();
        if (view.empty()) world[1]->wait(1ms);
      }
    }
  };
  round();
  const std::size_t before = allocations();
  for (int i = 0; i < 100; ++i) round();
  EXPECT_EQ(allocations(), before);
}

TEST_P(Tcp, TheSteadyStateAllocatesNothing) {
  for (const int sockets : {1, 4}) expect_no_allocations(sockets);
}

}  // namespace
}  // namespace ranvier
