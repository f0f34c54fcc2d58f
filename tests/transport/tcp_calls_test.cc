// What the transports tcp and grpc ask of the kernel: how many calls, how many bytes, on which sockets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>
#include <utility>
#include <vector>

#include "base/socket.h"
#include "transport/slow_line.h"
#include "transport/tcp_interposed.h"
#include "transport/tcp_world.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using namespace support;
using Clock = std::chrono::steady_clock;

// One message from one to the other, on this thread.
void move(Transport& from, Transport& to, Lane lane, ConstBytes head, ConstBytes body, Bytes into) {
  const std::size_t offered = head.size() + body.size();
  std::size_t sent = 0, received = 0;
  for (const auto deadline = Clock::now() + tcp_patience; received < offered && Clock::now() < deadline;) {
    if (sent < offered)
      sent += from.try_send(to.rank(), lane, head.subspan(std::min(sent, head.size())),
                            body.subspan(std::max(sent, head.size()) - head.size()));
    const ConstBytes view = to.try_recv(from.rank(), lane, into.subspan(std::min(received, into.size())));
    if (!view.empty() && view.data() != into.data() + received) to.release(from.rank(), lane, view.size());
    received += view.size();
    if (view.empty()) to.wait(1ms);
  }
  EXPECT_EQ(received, offered);
}

// How many bytes more than a message of 1000 the kernel gets to send, between ranks that listen on `ip`.
std::size_t overhead(const std::string& ip, const SecurityOptions& security) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (Rank rank = 0; rank < 2; ++rank)
    endpoints.push_back(tcp_endpoint({.rank = rank, .world = 2}, {.interface_address = ip, .security = security}));
  const auto world = connect_all(endpoints);
  const std::vector<std::byte> message(1000);
  std::vector<std::byte> result(message.size());
  clear_socket_calls();
  move(*world[0], *world[1], 0, {}, message, result);
  std::size_t sent = 0;
  for (const auto& [descriptor, calls] : socket_calls()) sent += calls.sent_bytes;
  return sent - message.size();
}

TEST(TcpCalls, WhatLeavesTheHostIsEncryptedUnlessThatIsGivenUp) {
  constexpr std::size_t record = 5 + 1 + 16;  // a header, the type inside, a tag (RFC 8446, 5.2)
  EXPECT_EQ(overhead("127.0.0.1", {}), 0U);
  EXPECT_EQ(overhead("127.0.0.1", {.encrypt_everywhere = true}), record);
  const auto outside = host_addresses();
  if (outside.empty()) GTEST_SKIP() << "this host has no address that another host could reach";
  EXPECT_EQ(overhead(outside.front(), {}), record);
  EXPECT_EQ(overhead(outside.front(), {.insecure = true}), 0U);
}

TEST(TcpCalls, SeveralSocketsShareALaneEvenly) {
  for (const int sockets : {1, 4}) {
    const auto world = connect_all(endpoints_of(tcp_endpoint, 2, {.sockets = sockets}));
    std::vector<std::byte> memory(4 << 20), result(memory.size());
    clear_socket_calls();
    move(*world[0], *world[1], 2, {}, memory, result);
    std::vector<std::size_t> sent, received;
    for (const auto& [descriptor, calls] : socket_calls()) {
      if (calls.sent_bytes > 0) sent.push_back(calls.sent_bytes);
      if (calls.received_bytes > 0) received.push_back(calls.received_bytes);
    }
    const auto parts = static_cast<std::size_t>(sockets);
    EXPECT_THAT(sent, testing::Each(memory.size() / parts));
    EXPECT_THAT(received, testing::Each(memory.size() / parts));
    EXPECT_EQ(sent.size(), parts);
    EXPECT_EQ(received.size(), parts);
  }
}

// Nothing but the heads of frames, 14 bytes each, comes to what was to be sent.
TEST(TcpCalls, OverGrpcASliceHasOneHead) {
  const auto world = connect_all(endpoints_of(grpc_endpoint, 2));
  std::vector<std::byte> memory(world[0]->traits().slice_bytes), result(memory.size());
  move(*world[0], *world[1], 0, {}, memory, result);  // each side has heard of the other's limits
  move(*world[1], *world[0], 0, {}, memory, result);
  clear_socket_calls();
  move(*world[0], *world[1], 0, {}, memory, result);
  std::size_t sent = 0;
  for (const auto& [descriptor, calls] : socket_calls()) sent += calls.sent_bytes;
  EXPECT_EQ(sent, memory.size() + 14);
}

TEST(TcpCalls, ASmallMessageIsOneSendAndOneReceiveOnAnyNumberOfSockets) {
  using Way = std::pair<MakeEndpoint*, int>;
  for (const auto& [make, sockets] : {Way{tcp_endpoint, 1}, Way{tcp_endpoint, 4}, Way{grpc_endpoint, 1}}) {
    const auto world = connect_all(endpoints_of(*make, 2, {.sockets = sockets}));
    const std::vector<std::byte> message(1000);
    clear_socket_calls();
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(world[0]->try_send(1, 0, ConstBytes(message).first(24), message), 1024U);
      world[1]->wait(tcp_patience);
      ASSERT_EQ(world[1]->try_recv(0, 0, {}).size(), 1024U);
      world[1]->release(0, 0, 1024);
    }
    SocketCalls all;
    for (const auto& [descriptor, calls] : socket_calls()) {
      all.sends += calls.sends;
      all.receives += calls.receives;
    }
    EXPECT_EQ(all.sends, 50U);
    EXPECT_EQ(all.receives, 50U);
  }
}

TEST(TcpCalls, ASliceIsOneSendOrOneForEachStripe) {
  using Way = std::tuple<MakeEndpoint*, int, unsigned>;
  for (const auto& [make, sockets, calls] :
       {Way{tcp_endpoint, 1, 1}, Way{tcp_endpoint, 4, 8}, Way{grpc_endpoint, 1, 1}, Way{grpc_endpoint, 4, 8}}) {
    const auto world = connect_all(endpoints_of(*make, 2, {.sockets = sockets}));
    const std::vector<std::byte> slice(512 << 10);
    clear_socket_calls();
    if (world[0]->try_send(1, 0, {}, slice) < slice.size()) GTEST_SKIP() << "this user may not set socket buffers";
    std::size_t sends = 0;
    for (const auto& [descriptor, each] : socket_calls()) sends += each.sends;
    EXPECT_EQ(sends, calls);
  }
}

// 64 KiB, or what an earlier sleep has asked the kernel for where that is more than half of it: the end of a message
// that came before can leave 44,888.
TEST(TcpCalls, OnASlowLineAReceiverSleepsUntilAGoodPartIsThere) {
  const auto world = tcp_world(2);
  EXPECT_GT(median_found_after_sleeps(*world[0], *world[1]), 32U << 10);
}

std::vector<std::unique_ptr<Transport>> grpc_world(int sockets) {
  return connect_all(endpoints_of(grpc_endpoint, 2, {.sockets = sockets}));
}

TEST(TcpCalls, WhatIsAwaitedAlwaysComes) {
  for (const int sockets : {1, 4}) {
    std::array worlds{tcp_world(2, sockets), tcp_world(2, sockets, {.encrypt_everywhere = true}), grpc_world(sockets)};
    for (auto& world : worlds)
      for (const std::size_t bytes : {700'001, 300'000, 65'537}) found_after_sleeps(*world[0], *world[1], bytes, 40us);
  }
}

// Whoever does not say what he expects wakes up for the first byte, also after he did.
TEST(TcpCalls, WhatWasExpectedOnceIsNotTheNextTime) {
  const auto world = tcp_world(2);
  const std::array expected{Expected{0, 1, 1 << 20}};
  ASSERT_TRUE(becomes_slow(*world[0], *world[1], expected));
  world[1]->wait(1ms);
  const std::vector<std::byte> message(100);
  ASSERT_EQ(world[0]->try_send(1, 1, {}, message), message.size());
  const auto began = Clock::now();
  world[1]->wait(tcp_patience);
  EXPECT_LT(Clock::now() - began, tcp_patience / 2);
  EXPECT_EQ(world[1]->try_recv(0, 1, {}).size(), message.size());
  world[1]->cancel();
  EXPECT_FALSE(world[1]->expect(expected));
}

}  // namespace
}  // namespace ranvier
