// Two ranks that look for each other over a wire that exists only as a list: what is lost is said again, and nobody is
// where he has not proven to be.
#include "transport/udp_greeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "base/host.h"
#include "ranvier/error.h"
#include "support/link_local.h"
#include "support/refusal.h"

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const SocketAddress elsewhere = *parse_address("192.0.2.7", 4711);

class TwoRanks : public testing::Test {
 protected:
  struct Letter {
    Rank from;
    SocketAddress to;
    PacketHeader header;
    std::vector<std::byte> payload;
    std::size_t bytes;  // that it is padded to
  };
  struct Side {
    UdpSocket socket{"127.0.0.1"};
    std::unique_ptr<UdpGreeting> greeting;
    std::optional<UdpGreeting::Found> found;
  };

  TwoRanks() { meet(); }

  // From the beginning, as if they had never met.
  void meet() {
    wire.clear();
    std::vector<UdpAddress> addresses(2);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      addresses[rank].port = sides[rank].socket.port();
      addresses[rank].key = rank;
      addresses[rank].meeting.host = host_identity();
    }
    for (Rank rank = 0; rank < 2; ++rank) {
      side(rank).found.reset();
      side(rank).greeting = std::make_unique<UdpGreeting>(
          WorldInfo{.rank = rank, .world = 2}, side(rank).socket, addresses,
          [this, rank](std::size_t, const SocketAddress& to, const PacketHeader& header, ConstBytes payload,
                       std::size_t bytes) {
            wire.push_back({rank, to, header, {payload.begin(), payload.end()}, bytes});
          },
          own_addresses);
    }
  }

  Side& side(Rank rank) { return sides[static_cast<std::size_t>(rank)]; }
  SocketAddress address_of(Rank rank) { return *parse_address("127.0.0.1", side(rank).socket.port()); }
  Letter next() {
    Letter letter = wire.front();
    wire.pop_front();
    return letter;
  }
  void deliver(const Letter& letter, const SocketAddress& from) {
    Side& to = side(1 - letter.from);
    const Packet packet{.header = letter.header, .acknowledgement = {}, .payload = letter.payload};
    if (const auto found = to.greeting->take(now, packet, from)) {
      EXPECT_FALSE(to.found) << "twice";
      to.found = found;
    }
  }
  // What is sent elsewhere is lost, and what the way of its sender does not take.
  bool is_lost(const Letter& letter) {
    return letter.to.text() != address_of(1 - letter.from).text() ||
           letter.bytes > takes[static_cast<std::size_t>(letter.from)];
  }
  void deliver(const Letter& letter) {
    if (!is_lost(letter)) deliver(letter, address_of(letter.from));
  }
  void deliver_all() {
    while (!wire.empty()) deliver(next());
  }

  std::array<Side, 2> sides;
  std::array<std::size_t, 2> takes{PacketSize::base, PacketSize::base};  // each one's way to the other
  std::deque<Letter> wire;
  UdpGreeting::IsOwn own_addresses = is_own;
  UdpGreeting::Time now{1h};
};

// No packet could change that.
TEST(UdpGreeting, WhoHasNoAddressIsNotWaitedFor) {
  const UdpSocket socket("127.0.0.1");
  std::vector<UdpAddress> addresses(2);
  for (UdpAddress& each : addresses) each.port = socket.port();
  addresses[1].meeting.host = host_identity();
  addresses[0].meeting.host = "elsewhere";
  const auto greet = [&](Rank rank) {
    UdpGreeting(
        WorldInfo{.rank = rank, .world = 2}, socket, addresses, [](auto&&...) {}, [](auto&&...) { return false; });
  };
  EXPECT_THAT(support::refusal([&] { greet(1); }, ErrorKind::unreachable),
              HasSubstr("rank 0 has no address by which rank 1 could reach it by udp"));
  greet(0);  // is called
}

TEST_F(TwoRanks, FindEachOther) {
  side(1).greeting->say_hello(now);
  deliver(next());
  EXPECT_FALSE(side(0).found) << "a hello alone proves nothing";
  now += 20ms;
  deliver(next());
  now += 30ms;
  deliver_all();
  for (const Rank rank : {0, 1}) {
    ASSERT_TRUE(side(rank).found);
    EXPECT_TRUE(side(rank).greeting->is_complete());
    EXPECT_EQ(side(rank).found->address.text(), address_of(1 - rank).text());
  }
  EXPECT_EQ(side(1).found->round_trip, 30ms);
  EXPECT_FALSE(side(0).found->round_trip) << "it has not called";
}

// The welcome may be of the first answer or of the second (Karn's rule).
TEST_F(TwoRanks, MeasureNoRoundTripWhereTheyHaveAnsweredTwice) {
  side(1).greeting->say_hello(now);
  while (wire.front().from == 1) deliver(next());
  const Letter challenge = next();
  deliver(challenge);
  now += 500ms;
  deliver(challenge);
  now += 30ms;
  deliver_all();
  ASSERT_TRUE(side(1).found);
  EXPECT_FALSE(side(1).found->round_trip);
}

TEST_F(TwoRanks, FindEachOtherWhateverIsLost) {
  std::mt19937 random(1);
  for (int look = 0; look < 200; ++look) {
    now = std::max(now, side(1).greeting->say_hello(now));
    while (!wire.empty())
      if (const Letter letter = next(); random() % 2 == 0) deliver(letter);
  }
  EXPECT_TRUE(side(0).greeting->is_complete());
  EXPECT_TRUE(side(1).greeting->is_complete());
}

// Either of them may be behind it: what comes back is tried, too.
TEST_F(TwoRanks, ThatOnlySmallPacketsReachAreToldOfIt) {
  for (const std::size_t narrow : {0, 1}) {
    takes = {PacketSize::base, PacketSize::base};
    takes.at(narrow) = PacketSize::base - 1;
    meet();
    const std::string why = support::refusal(
        [&] {
          for (const auto end = now + 10s; now < end;) {
            now = std::max(now, side(1).greeting->say_hello(now));
            deliver_all();
          }
        },
        ErrorKind::config);
    EXPECT_THAT(why, testing::AllOf(HasSubstr("rank 0 answers rank 1 by udp from 127.0.0.1"),
                                    HasSubstr("packets of 1228 bytes do not get there and back"), HasSubstr("an MTU"),
                                    HasSubstr("use transport tcp")));
    EXPECT_FALSE(side(1).found);
    EXPECT_THAT(support::refusal([&] { side(1).greeting->throw_unreached(1s); }, ErrorKind::unreachable),
                HasSubstr("127.0.0.1: it answers, but packets of 1228 bytes"));
  }
}

TEST_F(TwoRanks, PadNothingForAnybodyWhoHasNotProvenWhereHeIs) {
  side(1).greeting->say_hello(now);
  for (int letters = 0; !wire.empty() && letters < 50; ++letters) {
    const Letter letter = next();
    if (letter.to.text() == elsewhere.text()) {
      EXPECT_EQ(letter.bytes, 0U);
    } else if (!is_lost(letter)) {
      deliver(letter, elsewhere);
      deliver(letter);
    }
  }
}

TEST_F(TwoRanks, AreNotWhereTheirLettersWereSentAgainFrom) {
  side(1).greeting->say_hello(now);
  while (!wire.empty()) {
    const Letter letter = next();
    if (is_lost(letter)) continue;
    deliver(letter, elsewhere);
    deliver(letter);
  }
  for (const Rank rank : {0, 1}) {
    ASSERT_TRUE(side(rank).found) << rank;
    EXPECT_EQ(side(rank).found->address.text(), address_of(1 - rank).text());
  }
}

// What they agree on between themselves depends on it: windows, rings.
TEST_F(TwoRanks, KnowWhoIsOnTheirHostHoweverItsAddressIsShown) {
  std::vector<std::pair<SocketAddress, bool>> shown{{address_of(1), true},
                                                    {*parse_address("::ffff:127.0.0.1", 4711), true},
                                                    {elsewhere, false},
                                                    {*parse_address("::ffff:192.0.2.7", 4711), false}};
  for (const std::string& each : host_addresses()) shown.emplace_back(*parse_address(each, 4711), true);
  if (const auto own = support::link_local_address(4711)) shown.emplace_back(*own, true);
  for (const auto& [address, is_own] : shown) {
    meet();
    side(1).greeting->say_hello(now);
    for (int letters = 0; !wire.empty() && letters < 20; ++letters) {
      const Letter letter = next();
      deliver(letter, letter.from == 1 ? address : address_of(0));
    }
    ASSERT_TRUE(side(0).found) << address.text();
    EXPECT_EQ(side(0).found->connection.local_window > 0, is_own) << address.text();
  }
}

TEST_F(TwoRanks, MakeTheRingsThatTheyTellEvenIfTheNetworkChangesMeanwhile) {
  int asked = 0;
  own_addresses = [&](const SocketAddress&) { return ++asked % 2 == 0; };
  meet();
  side(1).greeting->say_hello(now);
  std::array<std::uint64_t, 2> told{};
  while (!wire.empty()) {
    const Letter letter = next();
    if (letter.header.kind != PacketKind::challenge)
      told.at(static_cast<std::size_t>(letter.from)) = letter.header.number;
    deliver(letter);
  }
  for (const Rank rank : {0, 1}) {
    ASSERT_TRUE(side(rank).found) << rank;
    EXPECT_EQ(side(rank).found->connection.ring_bytes, told.at(static_cast<std::size_t>(rank))) << rank;
    EXPECT_EQ(side(rank).found->connection.peer_ring_bytes, told.at(static_cast<std::size_t>(1 - rank))) << rank;
  }
}

// Anybody can send them again, as often as he likes, and each question to the system takes four calls of it.
TEST_F(TwoRanks, AskNothingOfTheSystemForHellosThatProveNothing) {
  int asked = 0;
  own_addresses = [&](const SocketAddress&) { return ++asked > 0; };
  meet();
  side(1).greeting->say_hello(now);
  const Letter hello = next();
  asked = 0;
  for (std::uint16_t port = 1; port <= 100; ++port) deliver(hello, *parse_address("192.0.2.7", port));
  EXPECT_EQ(wire.size(), 100U) << "challenges";
  EXPECT_EQ(asked, 0);
}

TEST_F(TwoRanks, AreMissedAsLongAsNothingIsProven) {
  side(1).greeting->say_hello(now);
  deliver(next());
  try {
    side(0).greeting->throw_unreached(1s);
  } catch (const Error& error) {
    EXPECT_EQ(error.culprit(), 1);
  }
}

// Of hosts that are clones of one machine each takes the others for itself: loopback is not all that is tried.
TEST(UdpAddress, LoopbackIsForTheSameHostOnly) {
  UdpAddress address;
  address.meeting.host = "boot/42";
  address.meeting.ips = {"10.0.0.1"};
  EXPECT_THAT(address.candidates("boot/42"), testing::ElementsAre("127.0.0.1", "10.0.0.1"));
  EXPECT_THAT(address.candidates("boot/43"), testing::ElementsAre("10.0.0.1"));
}

}  // namespace
}  // namespace ranvier::transport
