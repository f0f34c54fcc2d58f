// The udp transport with its datagrams sealed, on real sockets of this host: who gets in, what can be read on the wire,
// and that what somebody does to datagrams on their way changes nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "base/host.h"
#include "base/socket.h"
#include "ranvier/error.h"
#include "support/certificates.h"
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

Rank sender_of(const std::vector<std::byte>& datagram) {
  transport::PacketHeader header;
  if (datagram.size() < sizeof header) return -1;
  std::memcpy(&header, datagram.data(), sizeof header);
  return header.from;
}

void repeat_to(const Endpoint& endpoint, const transport::UdpSocket& stranger,
               const std::vector<std::vector<std::byte>>& datagrams) {
  const auto to = stranger.reachable("127.0.0.1", transport::UdpAddress::parse(endpoint.address())->port);
  for (const auto& datagram : datagrams)
    sendto(stranger.descriptor().get(), datagram.data(), datagram.size(), MSG_DONTWAIT,
           reinterpret_cast<const sockaddr*>(&to->storage), to->size);
}

// Whether a world's payload can be read on the wire.
bool can_be_read(const std::vector<std::unique_ptr<Transport>>& world) {
  const std::vector<std::byte> bytes(marked_bytes, std::byte{0x5a});
  listen_to_udp_wire();
  send_all(*world[0], 1, 0, bytes);
  EXPECT_EQ(receive_all(*world[1], 0, 0, bytes.size()), bytes);
  const auto heard = heard_on_udp_wire();
  EXPECT_FALSE(heard.empty());
  const std::vector<std::byte> mark(20, std::byte{0x5a});
  return std::ranges::any_of(heard, [&](const auto& datagram) {
    return std::search(datagram.begin(), datagram.end(), mark.begin(), mark.end()) != datagram.end();
  });
}
bool can_be_read(const UdpOptions& options) { return can_be_read(connect_all(udp_endpoints(2, options))); }

// An address that others could reach too, as between hosts; empty if this host has none.
std::string outside_address() {
  const auto addresses = host_addresses();
  const auto outside = std::ranges::find_if(addresses, [](const std::string& ip) { return ip.find('%') == ip.npos; });
  return outside == addresses.end() ? "" : *outside;
}

TEST(UdpSealed, WhatLeavesTheHostCannotBeReadAndWhatStaysCan) {
  EXPECT_TRUE(can_be_read(UdpOptions{}));
  EXPECT_TRUE(can_be_read({.security = {.insecure = true}}));
  EXPECT_FALSE(can_be_read(sealed()));
  const std::string outside = outside_address();
  if (outside.empty()) GTEST_SKIP() << "this host has no address but loopback";
  EXPECT_FALSE(can_be_read({.interface_address = outside}));
  EXPECT_TRUE(can_be_read({.interface_address = outside, .security = {.insecure = true}}));
}

// Hosts that are clones of one machine take each other for themselves, and loopback leads nowhere.
TEST(UdpSealed, RanksOfHostsThatSeemToBeOneMeetAndEncrypt) {
  const std::string outside = outside_address();
  if (outside.empty()) GTEST_SKIP() << "this host has no address but loopback";
  const auto endpoints = udp_endpoints(2, {.interface_address = outside});
  auto addresses = addresses_of(endpoints);
  for (std::string& text : addresses) {
    auto address = *transport::UdpAddress::parse(text);
    address.meeting.host = host_identity();
    text = address.text();
  }
  std::vector<std::unique_ptr<Transport>> world(2);
  on_threads(2, [&](Rank rank) {
    const auto index = static_cast<std::size_t>(rank);
    world[index] = endpoints[index]->connect(addresses, Clock::now() + 20s);
  });
  EXPECT_FALSE(can_be_read(world));
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
      for (const auto& endpoint : endpoints) repeat_to(*endpoint, stranger, heard);
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

// Somebody hears rank 1's hello, keeps it from its receiver and sends it from elsewhere: rank 1 is not there.
TEST(UdpSealed, AHelloThatComesFromElsewhereMovesNobody) {
  const auto endpoints = udp_endpoints(2, sealed());
  const auto addresses = addresses_of(endpoints);
  const transport::UdpSocket stranger("127.0.0.1");
  std::vector<std::unique_ptr<Transport>> world(2);
  listen_to_udp_wire();
  udp_wire = UdpWire::down;
  on_threads(3, [&](Rank thread) {
    if (thread < 2) {
      const auto index = static_cast<std::size_t>(thread);
      world[index] = endpoints[index]->connect(addresses, Clock::now() + tcp_patience);
      return;
    }
    // Rank 1 calls, the stranger repeats it, and rank 0 has answered into the void before the line is up.
    std::vector<std::vector<std::byte>> hellos;
    for (bool is_answered = false; !is_answered;) {
      std::this_thread::sleep_for(10ms);
      auto heard = heard_on_udp_wire();
      listen_to_udp_wire();
      is_answered = std::ranges::any_of(heard, [](const auto& datagram) { return sender_of(datagram) == 0; });
      if (hellos.empty() && !heard.empty()) repeat_to(*endpoints[0], stranger, hellos = std::move(heard));
    }
    udp_wire = UdpWire::honest;
  });
  const auto bytes = random_bytes(50'000, 4);
  send_all(*world[0], 1, 0, bytes);
  EXPECT_EQ(receive_all(*world[1], 0, 0, bytes.size()), bytes);
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

TEST(UdpSealed, WhoseCertificateHasExpiredIsNotLetIn) {
  Certificates made;
  made.add("new", "ours");
  made.add("old", "ours", -1);
  for (const Rank old : {0, 1}) {
    const auto told = told_when_they_meet([&](Rank rank) {
      UdpOptions options{.security = made.options(rank == old ? "old" : "new")};
      options.security.encrypt_everywhere = true;
      return udp_endpoint({.rank = rank, .world = 2}, options);
    });
    EXPECT_THAT(told[0], HasSubstr("rank 1 (it did not connect)"));
    EXPECT_THAT(told[1], HasSubstr("certificate"));
  }
}

}  // namespace
}  // namespace ranvier
