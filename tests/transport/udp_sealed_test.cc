// The udp transport with its datagrams sealed, on real sockets of this host: who gets in, what can be read on the wire,
// and that what somebody does to datagrams on their way changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/socket.h"
#include "ranvier/error.h"
#include "support/temporary_folder.h"
#include "transport/udp_address.h"
#include "transport/udp_packet.h"
#include "transport/udp_socket.h"
#include "transport/udp_world.h"

namespace ranvier {
namespace {

using namespace std::chrono_literals;
using namespace support;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr std::size_t marked_bytes = 100'000;

UdpOptions sealed() { return {.security = {.encrypt_everywhere = true}}; }

// Whether a world's payload can be read on the wire.
bool can_be_read(const UdpOptions& options) {
  auto world = connect_all(udp_endpoints(2, options));
  const std::vector<std::byte> bytes(marked_bytes, std::byte{0x5a});
  listen_to_udp_wire();
  send_all(*world[0], 1, 0, bytes);
  EXPECT_EQ(receive_all(*world[1], 0, 0, bytes.size()), bytes);
  const auto heard = heard_on_udp_wire();
  EXPECT_FALSE(heard.empty());
  const std::vector<std::byte> mark(20, std::byte{0x5a});
  return std::ranges::any_of(heard, [&](const auto& datagram) { return !std::ranges::search(datagram, mark).empty(); });
}

TEST(UdpSealed, WhatLeavesTheHostCannotBeReadAndWhatStaysCan) {
  EXPECT_TRUE(can_be_read({}));
  EXPECT_TRUE(can_be_read({.security = {.insecure = true}}));
  EXPECT_FALSE(can_be_read(sealed()));
  // Reached at an address that others could reach too, as between hosts.
  const auto addresses = host_addresses();
  const auto outside = std::ranges::find_if(addresses, [](const std::string& ip) { return ip.find('%') == ip.npos; });
  if (outside == addresses.end()) GTEST_SKIP() << "this host has no address but loopback";
  EXPECT_FALSE(can_be_read({.interface_address = *outside}));
  EXPECT_TRUE(can_be_read({.interface_address = *outside, .security = {.insecure = true}}));
}

TEST(UdpSealed, EveryLaneOfEveryPairDeliversWhatWasSent) {
  expect_everything_delivered(connect_all(udp_endpoints(3, sealed())), 3 << 20);
}

TEST(UdpSealed, DatagramsThatAreChangedCutShortRepeatedOrLostDoNotMatter) {
  const auto endpoints = udp_endpoints(3, sealed());
  udp_wire = UdpWire::hostile;
  expect_everything_delivered(connect_all(endpoints), 1 << 20);
  udp_wire = UdpWire::honest;
}

TEST(UdpSealed, DatagramsOfAnEarlierTimeChangeNothing) {
  const auto bytes = random_bytes(50'000, 3);
  std::vector<std::vector<std::byte>> heard;
  for (int session = 0; session < 2; ++session) {
    const auto endpoints = udp_endpoints(2, sealed());
    const auto world = connect_all(endpoints);
    const transport::UdpSocket stranger("127.0.0.1");
    // To whomever it was said: both hear it again, with what was heard in the session before.
    const auto repeat = [&] {
      for (const auto& endpoint : endpoints) {
        const auto port = transport::UdpAddress::parse(endpoint->address())->port;
        const auto to = stranger.reachable("127.0.0.1", port);
        for (const auto& datagram : heard)
          sendto(stranger.descriptor().get(), datagram.data(), datagram.size(), MSG_DONTWAIT,
                 reinterpret_cast<const sockaddr*>(&to->storage), to->size);
      }
    };
    listen_to_udp_wire();
    for (int round = 0; round < 3; ++round) {
      send_all(*world[0], 1, 0, bytes);
      repeat();
      EXPECT_EQ(receive_all(*world[1], 0, 0, bytes.size()), bytes);
    }
    heard = heard_on_udp_wire();
    EXPECT_FALSE(heard.empty());
    repeat();
    send_all(*world[1], 0, 2, bytes);
    EXPECT_EQ(receive_all(*world[0], 1, 2, bytes.size()), bytes);
    char answer = 0;
    EXPECT_LT(recv(stranger.descriptor().get(), &answer, 1, MSG_DONTWAIT), 0) << "a repeated datagram was answered";
  }
}

TEST(UdpSealed, AnotherKeyDoesNotGetInAndIsToldSo) {
  const TemporaryFolder folder;
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  for (Rank rank = 0; rank < 2; ++rank) {
    const auto file = folder.path() / std::to_string(rank);
    std::ofstream(file) << job_key_text(new_job_key());
    chmod(file.c_str(), S_IRUSR | S_IWUSR);
    endpoints.push_back(
        udp_endpoint({.rank = rank, .world = 2}, {.security = {.key_file = file, .encrypt_everywhere = true}}));
  }
  const auto addresses = addresses_of(endpoints);
  on_threads(2, [&](Rank rank) {
    try {
      endpoints[static_cast<std::size_t>(rank)]->connect(addresses, Clock::now() + (rank == 1 ? 5s : 7s));
      ADD_FAILURE() << "they have two keys";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unreachable);
      EXPECT_EQ(error.culprit(), 1 - rank);
      if (rank == 1) {
        EXPECT_THAT(error.what(), HasSubstr("has another key"));
      }
    }
  });
}

TEST(UdpSealed, RanksThatDoNotAgreeAreNamed) {
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  endpoints.push_back(udp_endpoint({.rank = 0, .world = 2}, {}));
  endpoints.push_back(udp_endpoint({.rank = 1, .world = 2}, {.security = {.insecure = true}}));
  const auto addresses = addresses_of(endpoints);
  for (Rank rank = 0; rank < 2; ++rank) try {
      endpoints[static_cast<std::size_t>(rank)]->connect(addresses, Clock::now() + 60s);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::mismatch);
      EXPECT_EQ(error.culprit(), 1 - rank);
      EXPECT_THAT(error.what(), HasSubstr("rank 0 encrypts what it sends by udp and rank 1 does not"));
    }
}

TEST(UdpSealed, AnAddressIsWhatItsTextSays) {
  const transport::UdpAddress address{
      .port = 4242, .key = 0xfeed, .meeting = {.host = "h", .port = 17, .ips = {"10.0.0.1", "fd00::1"}}};
  const std::string text = address.text();
  const auto parsed = transport::UdpAddress::parse(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->text(), text);
  EXPECT_EQ(parsed->port, 4242);
  EXPECT_EQ(parsed->key, 0xfeedU);
  for (std::size_t size = 0; size + 20 < text.size(); ++size)
    EXPECT_FALSE(transport::UdpAddress::parse(text.substr(0, size))) << size;
}

}  // namespace
}  // namespace ranvier
