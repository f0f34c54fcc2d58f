// The udp transport on real sockets of this host: what strangers send changes nothing, what is accepted arrives though
// its sender leaves, and nothing needs the caller's thread.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "base/socket.h"
#include "ranvier/error.h"
#include "transport/tcp_world.h"
#include "transport/udp_address.h"
#include "transport/udp_packet.h"
#include "transport/udp_socket.h"

namespace {
std::atomic<bool> network_is_down = false;
}

// In front of the C library's: while the network is down, packets leave and are lost.
extern "C" int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  if (network_is_down) return static_cast<int>(count);
  return static_cast<int>(syscall(SYS_sendmmsg, socket, messages, count, flags));
}

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using namespace support;
using Clock = std::chrono::steady_clock;

std::vector<std::unique_ptr<Endpoint>> udp_endpoints(Rank world, const UdpOptions& options = {}) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (Rank rank = 0; rank < world; ++rank) endpoints.push_back(udp_endpoint({.rank = rank, .world = world}, options));
  return endpoints;
}

std::vector<std::unique_ptr<Transport>> udp_world(Rank world) { return connect_all(udp_endpoints(world)); }

void send_all(Transport& transport, Rank to, Lane lane, ConstBytes bytes) {
  for (const auto deadline = Clock::now() + tcp_patience; !bytes.empty() && Clock::now() < deadline;) {
    const std::size_t accepted = transport.try_send(to, lane, {}, bytes);
    bytes = bytes.subspan(accepted);
    if (accepted == 0) transport.wait(10ms);
  }
  EXPECT_TRUE(bytes.empty());
}

std::vector<std::byte> receive_all(Transport& transport, Rank from, Lane lane, std::size_t bytes) {
  std::vector<std::byte> all;
  for (const auto deadline = Clock::now() + tcp_patience; all.size() < bytes && Clock::now() < deadline;) {
    const ConstBytes view = transport.try_recv(from, lane, {});
    const ConstBytes used = view.first(std::min(view.size(), bytes - all.size()));
    all.insert(all.end(), used.begin(), used.end());
    transport.release(from, lane, used.size());
    if (view.empty()) transport.wait(10ms);
  }
  EXPECT_EQ(all.size(), bytes);
  return all;
}

std::vector<std::byte> random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
  return bytes;
}

TEST(Udp, EveryLaneOfEveryPairDeliversWhatWasSent) {
  const auto world = udp_world(3);
  const std::size_t bytes = 3 << 20;
  on_threads(3, [&](Rank rank) {
    Transport& transport = *world[static_cast<std::size_t>(rank)];
    for (Lane lane = 0; lane < 2; ++lane)
      for (Rank step = 1; step < 3; ++step) {
        const Rank to = (rank + step) % 3, from = (rank + 3 - step) % 3;
        const auto mine = random_bytes(bytes, static_cast<unsigned>(rank * 8 + lane));
        std::size_t sent = 0;
        std::vector<std::byte> got;
        while (sent < bytes || got.size() < bytes) {
          const std::size_t accepted = transport.try_send(to, lane, {}, std::span(mine).subspan(sent));
          sent += accepted;
          const ConstBytes view = transport.try_recv(from, lane, {});
          const ConstBytes used = view.first(std::min(view.size(), bytes - got.size()));
          got.insert(got.end(), used.begin(), used.end());
          transport.release(from, lane, used.size());
          if (accepted == 0 && used.empty()) transport.wait(10ms);
        }
        EXPECT_EQ(got, random_bytes(bytes, static_cast<unsigned>(from * 8 + lane)));
      }
  });
}

TEST(Udp, WhatWasAcceptedArrivesThoughItsSenderLeavesAndNobodyReadsYet) {
  auto world = udp_world(2);
  const auto bytes = random_bytes(1 << 20, 5);
  send_all(*world[0], 1, 3, bytes);
  world[0].reset();
  EXPECT_EQ(receive_all(*world[1], 0, 3, bytes.size()), bytes);
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

TEST(Udp, PacketsMoveWhileNoRankCalls) {
  const auto world = udp_world(2);
  const auto bytes = random_bytes(world[0]->traits().buffered_bytes, 7);
  send_all(*world[0], 1, 1, bytes);
  std::this_thread::sleep_for(50ms);
  const auto start = Clock::now();
  EXPECT_EQ(receive_all(*world[1], 0, 1, bytes.size()), bytes);
  EXPECT_LT(Clock::now() - start, tcp_patience);
}

TEST(Udp, WhatWasLostIsSentAgainThoughItsSenderNeverCallsAgain) {
  const auto world = udp_world(2);
  std::this_thread::sleep_for(100ms);  // nothing is due, and nobody looks for it
  const auto bytes = random_bytes(1000, 8);
  network_is_down = true;
  EXPECT_EQ(world[0]->try_send(1, 2, {}, bytes), bytes.size());
  network_is_down = false;
  const auto start = Clock::now();
  EXPECT_EQ(receive_all(*world[1], 0, 2, bytes.size()), bytes);
  EXPECT_LT(Clock::now() - start, tcp_patience);
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

TEST(Udp, StrangersChangeNothing) {
  auto endpoints = udp_endpoints(2);
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
  stranger.receive([&](ConstBytes, const SocketAddress&) { answered = true; });
  EXPECT_FALSE(answered) << "who does not know the key is told nothing";
}

TEST(Udp, ARankThatDoesNotComeIsNamed) {
  auto endpoints = udp_endpoints(3);
  const auto addresses = addresses_of(endpoints);
  on_threads(2, [&](Rank rank) {
    try {
      endpoints[static_cast<std::size_t>(rank)]->connect(addresses, Clock::now() + 200ms);
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

TEST(Udp, OtherHostsAreRefusedUnlessTheUserTrustsTheNetwork) {
  const auto endpoint = udp_endpoint({.rank = 0, .world = 2});
  transport::UdpAddress elsewhere{.host = "another", .port = 4242, .ips = {"203.0.113.7"}};
  try {
    endpoint->connect({endpoint->address(), elsewhere.text()}, Clock::now() + 1s);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
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
  EXPECT_THROW(udp_endpoint({}, {.interface_address = "127.0.0.1", .ports = {taken, taken}}), Error);
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
