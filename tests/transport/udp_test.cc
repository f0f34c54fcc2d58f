// The udp transport on real sockets of this host: what strangers send changes nothing, what is accepted arrives though
// its sender leaves, and nothing needs the caller's thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "base/socket.h"
#include "ranvier/error.h"
#include "support/refusal.h"
#include "transport/slow_line.h"
#include "transport/udp_address.h"
#include "transport/udp_keeper.h"
#include "transport/udp_packet.h"
#include "transport/udp_socket.h"
#include "transport/udp_world.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using namespace support;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::vector<std::unique_ptr<Transport>> udp_world(Rank world) { return connect_all(udp_endpoints(world)); }

TEST(Udp, EveryLaneOfEveryPairDeliversWhatWasSent) { expect_everything_delivered(udp_world(3), 3 << 20); }

TEST(Udp, WhatWasAcceptedArrivesThoughItsSenderLeavesAndNobodyReadsYet) {
  auto world = udp_world(2);
  const auto bytes = random_bytes(1 << 20, 5);
  send_all(*world[0], 1, 3, bytes);
  world[0].reset();
  EXPECT_EQ(receive_all(*world[1], 0, 3, bytes.size()), bytes);
}

// Longer than one who does not read at all is waited for.
TEST(Udp, WhatWasAcceptedArrivesThoughItIsReadSlowly) {
  auto world = udp_world(2);
  const std::size_t ring = world[0]->traits().buffered_bytes;
  const auto bytes = random_bytes(2 * ring, 5);  // his and the reader's
  send_all(*world[0], 1, 3, bytes);
  const std::jthread leaver([&] {
    world[0]->close();
    world[0].reset();
  });
  std::vector<std::byte> received;
  for (int quarter = 0; quarter < 4; ++quarter) {
    std::this_thread::sleep_for(1500ms);
    std::ranges::copy(receive_all(*world[1], 0, 3, ring / 4), std::back_inserter(received));
  }
  std::ranges::copy(receive_all(*world[1], 0, 3, ring), std::back_inserter(received));
  EXPECT_TRUE(std::ranges::equal(received, std::span(bytes).first(received.size())));
}

TEST(Udp, ACancelledTransportStillDeliversWhatItAcceptedAndRefusesMore) {
  auto world = udp_world(2);
  const auto bytes = random_bytes(100'000, 6);
  send_all(*world[0], 1, 0, bytes);
  world[0]->cancel();
  EXPECT_THROW(world[0]->try_send(1, 0, {}, bytes), Error);
  world[0].reset();
  EXPECT_EQ(receive_all(*world[1], 0, 0, bytes.size()), bytes);
}

// As one that failed may be in the middle of something else, and whoever meets anew does not wait for it.
TEST(Udp, ACancelledTransportDoesNotWaitForARankThatReadsNothing) {
  auto world = udp_world(2);
  const auto bytes = random_bytes(64 << 20, 6);
  std::size_t accepted = 0;
  for (const auto until = Clock::now() + 500ms; Clock::now() < until;)
    accepted += world[0]->try_send(1, 0, {}, std::span(bytes).subspan(accepted));
  ASSERT_LT(accepted, bytes.size());
  world[0]->cancel();
  const auto begin = Clock::now();
  world[0].reset();
  EXPECT_LT(Clock::now() - begin, 4s);
}

TEST(Udp, WhatWasAcceptedArrivesAndAGoodbyeThoughItsSenderLeavesSinceAnotherRankDied) {
  const auto endpoints = udp_endpoints(3, {.unanswered_limit = 100ms});
  auto world = connect_all(endpoints);
  const auto bytes = random_bytes(world[0]->traits().buffered_bytes * 3 / 2, 5);  // more than the reader's ring
  send_all(*world[0], 2, 3, bytes);
  udp_wire = UdpWire::down;
  world[1].reset();
  udp_wire = UdpWire::honest;
  world[0]->try_send(1, 0, {}, random_bytes(100, 1));
  const auto poll = [&] {
    for (const auto until = Clock::now() + tcp_patience; Clock::now() < until; world[0]->wait(10ms))
      world[0]->try_recv(1, 0, {});
  };
  EXPECT_THAT(refusal(poll, ErrorKind::peer_lost), HasSubstr("rank 1 has acknowledged nothing"));

  std::jthread leaver([&] { world[0].reset(); });
  std::this_thread::sleep_for(1s);  // longer than until rank 1 is sent something again
  listen_to_udp_wire();
  EXPECT_EQ(receive_all(*world[2], 0, 3, bytes.size()), bytes);
  leaver.join();
  const auto key = transport::UdpAddress::parse(endpoints[2]->address())->key;
  EXPECT_TRUE(std::ranges::any_of(heard_on_udp_wire(), [&](const auto& datagram) {
    transport::PacketHeader header;
    std::memcpy(&header, datagram.data(), sizeof header);
    return header.key == key && header.kind == transport::PacketKind::goodbye;
  }));
}

TEST(Udp, PacketsMoveWhileNoRankCalls) {
  const auto world = udp_world(2);
  const auto bytes = random_bytes(world[0]->traits().buffered_bytes, 7);
  send_all(*world[0], 1, 1, bytes);
  std::this_thread::sleep_for(50ms);
  const auto start = Clock::now();
  EXPECT_EQ(receive_all(*world[1], 0, 1, bytes.size()), bytes);
  EXPECT_LT(Clock::now() - start, tcp_patience);
}

// Asked from another thread, while nobody calls anything.
TEST(Udp, ARankThatIsThereGivesSignsThoughNothingIsSent) {
  const auto world = udp_world(2);
  EXPECT_FALSE(world[0]->last_sign(0)) << "itself";
  for (int i = 0; i < 3; ++i) {
    const auto asked = Clock::now();
    std::jthread([&] {
      while (*world[0]->last_sign(1) < asked && Clock::now() < asked + tcp_patience) std::this_thread::sleep_for(1ms);
    }).join();
    EXPECT_GE(*world[0]->last_sign(1), asked);
  }
}

TEST(Udp, WhatWasLostIsSentAgainThoughItsSenderNeverCallsAgain) {
  const auto world = udp_world(2);
  std::this_thread::sleep_for(100ms);  // nothing is due, and nobody looks for it
  const auto bytes = random_bytes(1000, 8);
  udp_wire = UdpWire::down;
  EXPECT_EQ(world[0]->try_send(1, 2, {}, bytes), bytes.size());
  udp_wire = UdpWire::honest;
  const auto start = Clock::now();
  EXPECT_EQ(receive_all(*world[1], 0, 2, bytes.size()), bytes);
  EXPECT_LT(Clock::now() - start, tcp_patience);
}

TEST(Udp, CountsItsPacketsThoseThatWereLostAndThoseThatItRefused) {
  auto world = connect_all(udp_endpoints(2, {.security = {.encrypt_everywhere = true}}));
  const auto bytes = random_bytes(100'000, 9);
  send_all(*world[0], 1, 0, bytes);
  receive_all(*world[1], 0, 0, bytes.size());
  EXPECT_GT(world[0]->packet_counts()->sent, 0U);
  EXPECT_EQ(world[0]->packet_counts()->refused + world[1]->packet_counts()->refused, 0U);

  udp_wire = UdpWire::down;
  world[0]->try_send(1, 2, {}, bytes);
  udp_wire = UdpWire::honest;
  receive_all(*world[1], 0, 2, 1000);
  // Whoever sent them knows once the acknowledgement of what came again is back.
  const auto until = Clock::now() + tcp_patience;
  while (world[0]->packet_counts()->lost == 0 && Clock::now() < until) std::this_thread::sleep_for(1ms);
  EXPECT_GT(world[0]->packet_counts()->lost, 0U);

  udp_wire = UdpWire::hostile;  // copies come behind them, changed and cut short
  send_all(*world[0], 1, 1, bytes);
  udp_wire = UdpWire::honest;
  receive_all(*world[1], 0, 1, bytes.size());
  EXPECT_GT(world[1]->packet_counts()->refused, 0U);
}

TEST(Udp, AWaiterWakesForBytesAndForInterrupts) {
  const auto world = udp_world(2);
  std::jthread other([&] {
    std::this_thread::sleep_for(20ms);
    world[1]->interrupt();
    std::this_thread::sleep_for(20ms);
    world[0]->try_send(1, 0, {}, random_bytes(10, 1));
  });
  const auto start = Clock::now();
  world[1]->wait(tcp_patience);
  while (world[1]->try_recv(0, 0, {}).empty() && Clock::now() - start < tcp_patience) world[1]->wait(tcp_patience);
  EXPECT_LT(Clock::now() - start, tcp_patience);
  EXPECT_EQ(world[1]->try_recv(0, 0, {}).size(), 10U);
}

// 64 KiB, where no packet of them is late.
TEST(Udp, OnASlowLineAReceiverSleepsUntilAGoodPartIsThere) {
  const auto world = udp_world(2);
  EXPECT_GE(median_found_after_sleeps(*world[0], *world[1]), 60U << 10);
}

// Though packets vanish, and the last ones are there before those in front of them.
TEST(Udp, WhatIsAwaitedOnASlowLineComesThoughPacketsAreLost) {
  const auto world = connect_all(udp_endpoints(2, {.security = {.encrypt_everywhere = true}}));
  udp_wire = UdpWire::hostile;
  for (const std::size_t bytes : {700'001, 300'000, 65'537}) found_after_sleeps(*world[0], *world[1], bytes, 40us);
  udp_wire = UdpWire::honest;
}

TEST(Udp, WhoWaitsForMessagesFarBetweenIsWokenByTheFirstPacket) {
  const auto world = udp_world(2);
  const auto message = random_bytes(32 << 10, 3);
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(2ms);
    send_all(*world[0], 1, 1, message);
    EXPECT_FALSE(world[1]->expect(std::array{Expected{0, 1, message.size()}})) << i;
    EXPECT_EQ(receive_all(*world[1], 0, 1, message.size()), message);
  }
}

TEST(Udp, WhoRestsIsWokenByInterrupts) {
  const auto world = udp_world(2);
  const std::array expected{Expected{0, 1, 1 << 20}};
  ASSERT_TRUE(becomes_slow(*world[0], *world[1], expected));
  std::jthread other([&] {
    std::this_thread::sleep_for(20ms);
    world[1]->interrupt();
  });
  const auto began = Clock::now();
  world[1]->wait(tcp_patience);
  EXPECT_LT(Clock::now() - began, tcp_patience / 2);
}

// However late it is looked at; and a round trip that ends with it is never shorter than the path is, whatever whoever
// is told of the one before does first.
TEST(Udp, WhenAPacketArrivedIsKnownByWhoeverReadsItLate) {
  transport::UdpSocket from("127.0.0.1"), to("127.0.0.1");
  std::array<transport::OutgoingPacket, 1> packet;
  packet[0].head_bytes = 100;
  const auto target = from.reachable("127.0.0.1", to.port());
  ASSERT_TRUE(target);
  // On a busy machine one may come late, or be read some time after the kernel has said what time it is.
  bool all_known = false;
  for (int attempt = 0; attempt < 50 && !all_known; ++attempt) {
    std::array<Clock::time_point, 2> sent, left;
    for (const std::size_t i : {0, 1}) {
      sent[i] = Clock::now();
      ASSERT_TRUE(from.send(*target, packet));
      left[i] = Clock::now();
      std::this_thread::sleep_for(50ms);
    }
    const auto looked = Clock::now();
    all_known = true;
    std::size_t count = 0;
    while (count < 2 && Clock::now() < looked + tcp_patience)
      to.receive([&](const transport::UdpSocket::Arrival& arrival) {
        ASSERT_LT(count, 2U);
        EXPECT_GE(arrival.read, looked);
        EXPECT_GE(arrival.arrived, sent[count] - 1ms);
        all_known = all_known && arrival.arrived <= left[count] + 25ms;
        ++count;
        std::this_thread::sleep_for(100ms);
      });
    ASSERT_EQ(count, 2U);
  }
  EXPECT_TRUE(all_known);
}

// It would take what has come from under them.
TEST(UdpKeeper, LeavesPacketsToThoseWhoWentToSleepWhileItWaitedForThem) {
  const transport::UdpSocket socket("127.0.0.1");
  std::mutex mutex;
  std::atomic<int> moves = 0;
  transport::UdpKeeper keeper(socket, mutex, [&](Clock::time_point) {
    ++moves;
    return Clock::time_point::max();
  });
  {
    const std::lock_guard lock(mutex);
    keeper.start();
    std::this_thread::sleep_for(50ms);  // it is there by now
    keeper.others_sleep(true);
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(moves, 0);
  keeper.others_sleep(false);
  const auto until = Clock::now() + tcp_patience;
  while (moves == 0 && Clock::now() < until) std::this_thread::sleep_for(1ms);
  EXPECT_GT(moves, 0);
}

class UdpStrangers : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, UdpStrangers, testing::Bool(),
                         [](const auto& sealed) { return sealed.param ? "sealed" : "plain"; });

TEST_P(UdpStrangers, ChangeNothing) {
  auto endpoints = udp_endpoints(2, {.security = {.encrypt_everywhere = GetParam()}});
  const auto address = transport::UdpAddress::parse(endpoints[1]->address());
  ASSERT_TRUE(address);
  transport::UdpSocket stranger("127.0.0.1");
  const auto target = stranger.reachable("127.0.0.1", address->port);
  ASSERT_TRUE(target);
  std::mt19937 random(1);
  std::vector<transport::OutgoingPacket> garbage(40);
  const auto send_garbage = [&] {
    for (auto& packet : garbage) {
      packet.head_bytes = 1 + random() % packet.head.size();
      for (std::byte& byte : packet.head) byte = static_cast<std::byte>(random());
      // Some of it shows a key, though a wrong one, and all else right.
      if (random() % 2 == 0) {
        transport::PacketHeader header;
        header.key = random();
        header.from = static_cast<Rank>(random() % 3);
        header.kind = static_cast<transport::PacketKind>(random() % transport::packet_kinds);
        packet.head_bytes = transport::write_packet_head(header, {}, packet.head);
      }
    }
    stranger.send(*target, garbage);
  };
  send_garbage();
  const auto world = connect_all(endpoints);
  const auto bytes = random_bytes(200'000, 9);
  send_garbage();
  send_all(*world[0], 1, 0, bytes);
  send_garbage();
  EXPECT_EQ(receive_all(*world[1], 0, 0, bytes.size()), bytes);
  bool answered = false;
  stranger.receive([&](const transport::UdpSocket::Arrival&) { answered = true; });
  EXPECT_FALSE(answered) << "who does not know the key is told nothing";
}

TEST(Udp, ARankThatDoesNotComeIsNamed) {
  auto endpoints = udp_endpoints(3);
  const auto addresses = addresses_of(endpoints);
  on_threads(2, [&](Rank rank) {
    try {
      endpoints[static_cast<std::size_t>(rank)]->connect(addresses, Clock::now() + 2s);
      ADD_FAILURE() << "rank 2 was never there";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreachable);
      EXPECT_EQ(error.culprit(), 2);
    }
  });
}

TEST(Udp, AnAddressOfAnotherTransportIsRefused) {
  const auto endpoint = udp_endpoint({.rank = 0, .world = 2});
  const auto tcp = tcp_endpoint({.rank = 1, .world = 2});
  try {
    endpoint->connect({endpoint->address(), tcp->address()}, Clock::now() + 1s);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_EQ(error.culprit(), 1);
  }
}

TEST(Udp, ThePortIsOfTheRangeAndATakenOneIsPassedOver) {
  const auto first = udp_endpoint({}, {.interface_address = "127.0.0.1"});
  const std::uint16_t taken = transport::UdpAddress::parse(first->address())->port;
  if (taken == 65535) GTEST_SKIP() << "there is no next port";
  const auto next = static_cast<std::uint16_t>(taken + 1);
  try {
    const auto second = udp_endpoint({}, {.interface_address = "127.0.0.1", .ports = {taken, next}});
    EXPECT_EQ(transport::UdpAddress::parse(second->address())->port, next);
  } catch (const Error& error) {  // somebody else has that one
    EXPECT_EQ(error.kind(), ErrorKind::config);
  }
  const auto open_taken = [&] { udp_endpoint({}, {.interface_address = "127.0.0.1", .ports = {taken, taken}}); };
  EXPECT_THAT(support::refusal(open_taken, ErrorKind::config), HasSubstr("one for each rank of this host"));
}

// It would wait in vain for answers to what never left it.
TEST(Udp, ASocketOfOneAddressReachesThoseOfItsKindAlone) {
  using transport::UdpSocket;
  EXPECT_TRUE(UdpSocket("", {}).reachable("127.0.0.1", 5));
  EXPECT_FALSE(UdpSocket("127.0.0.1", {}).reachable("::1", 5));
  std::optional<UdpSocket> of_six;
  try {
    of_six.emplace("::1", PortRange{});
  } catch (const Error&) {
    GTEST_SKIP() << "this host has no IPv6";
  }
  EXPECT_TRUE(of_six->reachable("::1", 5));
  EXPECT_FALSE(of_six->reachable("127.0.0.1", 5));
}

TEST(Udp, OneInterfaceCanBeChosenAndAnImpossibleOneIsRefused) {
  const auto world = connect_all(udp_endpoints(2, {.interface_address = "127.0.0.1"}));
  send_all(*world[1], 0, 0, random_bytes(100, 1));
  EXPECT_EQ(receive_all(*world[0], 1, 0, 100), random_bytes(100, 1));
  EXPECT_THROW(udp_endpoint({}, {.interface_address = "203.0.113.7"}), Error);
  EXPECT_THROW(udp_endpoint({}, {.interface_address = "nowhere"}), Error);
}

}  // namespace
}  // namespace ranvier
