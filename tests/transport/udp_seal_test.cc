// Sealed datagrams: what one end closes the other opens, once, whole and unchanged, and nobody else does.
#include "transport/udp_seal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::transport {
namespace {

using Datagram = std::vector<std::byte>;

constexpr std::uint64_t shown_key = 42;

Secret secret_of(unsigned seed) {
  std::mt19937 random(seed);
  Secret secret;
  std::ranges::generate(secret, [&] { return static_cast<std::byte>(random()); });
  return secret;
}

// Two ends that agree on secrets.
struct Ends {
  explicit Ends(std::uint64_t datagrams_a_key = UdpSeal::ordinary_datagrams_a_key)
      : here({secret_of(1), secret_of(2)}, datagrams_a_key), there({secret_of(2), secret_of(1)}, datagrams_a_key) {}

  static OutgoingPacket packet(std::size_t ranges, ConstBytes payload) {
    PacketHeader header{.key = shown_key, .number = 7, .from = 1};
    header.ranges = static_cast<std::uint8_t>(ranges);
    header.payload = static_cast<std::uint16_t>(payload.size());
    Acknowledgement acknowledgement;
    acknowledgement.count = ranges;
    for (std::size_t i = 0; i < ranges; ++i) acknowledgement.ranges[i] = {1000 - 10 * i, 1005 - 10 * i};
    OutgoingPacket made;
    made.head_bytes = write_packet_head(header, acknowledgement, made.head);
    made.payload = payload;
    return made;
  }

  static Datagram flat(const OutgoingPacket& packet) {
    Datagram bytes(packet.head.begin(), packet.head.begin() + static_cast<std::ptrdiff_t>(packet.head_bytes));
    bytes.insert(bytes.end(), packet.payload.begin(), packet.payload.end());
    return bytes;
  }

  // As it leaves.
  Datagram closed(UdpSeal& seal, OutgoingPacket packet) {
    seal.close(std::span(&packet, 1), buffers);
    return flat(packet);
  }
  Datagram closed(std::string_view text = "gradient") {
    return closed(here, packet(0, std::as_bytes(std::span(text))));
  }

  // The payload of what arrives there.
  std::optional<std::string> opened(UdpSeal& seal, const Datagram& datagram) {
    Packet parsed;
    if (!parse_packet(seal.open(datagram, shown_key, buffers), shown_key, parsed)) return std::nullopt;
    return std::string(reinterpret_cast<const char*>(parsed.payload.data()), parsed.payload.size());
  }
  std::optional<std::string> opened(const Datagram& datagram) { return opened(there, datagram); }

  UdpSeal here, there;
  UdpSeal::Buffers buffers;
};

TEST(UdpSeal, OpensWhatTheOtherEndClosed) {
  Ends ends;
  std::mt19937 random(1);
  Datagram payload(65'507 - sizeof(PacketHeader) - UdpSeal::bytes);
  std::ranges::generate(payload, [&] { return static_cast<std::byte>(random()); });
  for (const std::size_t ranges : {std::size_t{0}, std::size_t{1}, std::size_t{7}, most_ack_ranges})
    for (const std::size_t size : {0, 1, 15, 16, 17, 1400, 60'000}) {
      const OutgoingPacket plain = Ends::packet(ranges, ConstBytes(payload).first(size));
      const Datagram sealed = ends.closed(ends.here, plain);
      EXPECT_EQ(sealed.size(), plain.bytes() + UdpSeal::bytes);
      const ConstBytes opened = ends.there.open(sealed, shown_key, ends.buffers);
      EXPECT_EQ(Datagram(opened.begin(), opened.end()), Ends::flat(plain));
    }
  EXPECT_EQ(ends.there.refused(), 0U);
}

TEST(UdpSeal, ABatchIsSealedPacketByPacket) {
  Ends ends;
  const Datagram payload(1400, std::byte{5});
  std::vector<OutgoingPacket> batch(64, Ends::packet(2, payload));
  const Datagram plain = Ends::flat(batch.front());
  ends.here.close(batch, ends.buffers);
  std::set<Datagram> all;
  for (const OutgoingPacket& packet : batch) all.insert(Ends::flat(packet));
  EXPECT_EQ(all.size(), batch.size()) << "one plaintext never looks the same twice";
  for (const Datagram& datagram : all) {
    const ConstBytes opened = ends.there.open(datagram, shown_key, ends.buffers);
    EXPECT_EQ(Datagram(opened.begin(), opened.end()), plain);
  }
}

// Computed by another implementation (hmac and AESGCM of Python's libraries) from what udp_seal.h says.
TEST(UdpSeal, IsWhatItsHeaderSays) {
  Secret secret;
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(i);
  UdpSeal seal({secret, secret}, 2);
  UdpSeal::Buffers buffers;
  OutgoingPacket packet;
  for (const std::string expected :
       {"970d221dae08d5c99391ca50fb3d0b1b4363e6cee94eff6e", "f314c0c54bf486e5d52ae4e27286351e0f6f36940e8fd093"}) {
    for (std::size_t i = 0; i < 32; ++i) packet.head[8 + i] = static_cast<std::byte>(100 + i);
    packet.head_bytes = 40;
    packet.payload = std::as_bytes(std::span(std::string_view("gradient")));
    seal.close(std::span(&packet, 1), buffers);
    std::string digits;
    for (const std::byte byte : packet.payload) digits += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
    EXPECT_EQ(digits, expected);
  }
}

TEST(UdpSeal, EachDirectionHasItsKeys) {
  Ends ends;
  const Datagram from_here = ends.closed();
  const Datagram from_there =
      ends.closed(ends.there, Ends::packet(0, std::as_bytes(std::span(std::string_view("gradient")))));
  EXPECT_NE(from_here, from_there);
  EXPECT_EQ(ends.opened(ends.here, from_here), std::nullopt) << "a datagram that is sent back";
  EXPECT_EQ(ends.opened(ends.here, from_there), "gradient");
}

TEST(UdpSeal, SecretsAreThoseOfOneTlsSession) {
  const std::array<std::byte, 16> token{std::byte{1}};
  const auto context = std::make_shared<TlsContext>(SecurityOptions{}, token);
  const auto secrets = [&] {
    std::array<int, 2> ends{};
    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data());
    const Fd one(ends[0]), other(ends[1]);
    TlsSession dialler(context, one, TlsRole::dialler), guest(context, other, TlsRole::guest);
    for (int i = 0; i < 5; ++i) {
      dialler.handshake();
      guest.handshake();
    }
    return std::array{udp_secrets(dialler, TlsRole::dialler), udp_secrets(guest, TlsRole::guest)};
  };
  const auto [dialler, guest] = secrets();
  EXPECT_EQ(dialler.sending, guest.receiving);
  EXPECT_EQ(dialler.receiving, guest.sending);
  EXPECT_NE(dialler.sending, dialler.receiving);
  const auto [next, its_guest] = secrets();
  EXPECT_NE(next.sending, dialler.sending) << "of the same job key";
}

TEST(UdpSeal, AnyChangeIsRefusedAndHurtsNobody) {
  Ends ends;
  const Datagram honest = ends.closed();
  for (std::size_t bit = 0; bit < 8 * honest.size(); ++bit) {
    Datagram changed = honest;
    changed[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    EXPECT_EQ(ends.opened(changed), std::nullopt) << bit;
  }
  for (std::size_t size = 0; size < honest.size(); ++size)
    EXPECT_EQ(ends.opened(Datagram(honest.begin(), honest.begin() + static_cast<std::ptrdiff_t>(size))), std::nullopt);
  Datagram longer = honest;
  longer.resize(honest.size() + 1);
  EXPECT_EQ(ends.opened(longer), std::nullopt);
  longer.resize(70'000);
  EXPECT_EQ(ends.opened(longer), std::nullopt);
  EXPECT_EQ(ends.there.refused(), 8 * honest.size() + honest.size() + 2);
  EXPECT_EQ(ends.opened(honest), "gradient");
}

TEST(UdpSeal, AStrangersKeysOpenNothing) {
  Ends ends;
  UdpSeal stranger({secret_of(3), secret_of(4)});
  const Datagram theirs = ends.closed(stranger, Ends::packet(0, {}));
  EXPECT_EQ(ends.opened(theirs), std::nullopt);
  EXPECT_EQ(ends.opened(stranger, ends.closed()), std::nullopt);
}

TEST(UdpSeal, NothingIsTakenTwiceAndTheOrderDoesNotMatter) {
  Ends ends;
  std::vector<Datagram> sent;
  for (int i = 0; i < 1000; ++i) sent.push_back(ends.closed(std::to_string(i)));
  std::mt19937 random(5);
  std::vector<std::size_t> order(sent.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::shuffle(order, random);
  for (const std::size_t i : order) EXPECT_EQ(ends.opened(sent[i]), std::to_string(i));
  for (const std::size_t i : order) EXPECT_EQ(ends.opened(sent[i]), std::nullopt);
  EXPECT_EQ(ends.there.refused(), sent.size());
}

TEST(UdpSeal, KeysChangeWhileDatagramsAreLostAndLate) {
  constexpr std::uint64_t a_key = 50;
  Ends ends(a_key);
  std::mt19937 random(6);
  std::deque<std::pair<int, Datagram>> under_way;
  std::size_t arrived = 0;
  for (int i = 0; i < 5000; ++i) {
    if (Datagram sealed = ends.closed(std::to_string(i)); random() % 5 > 0)
      under_way.emplace_back(i, std::move(sealed));
    while (under_way.size() > 20) {
      const bool too_late = i - under_way.front().first >= static_cast<int>(a_key) - 1;  // by more than one key
      const auto late = under_way.begin() + static_cast<std::ptrdiff_t>(too_late ? 0 : random() % under_way.size());
      EXPECT_EQ(ends.opened(late->second), std::to_string(late->first));
      under_way.erase(late);
      ++arrived;
    }
  }
  EXPECT_GT(arrived, 3800U);
  EXPECT_EQ(ends.there.refused(), 0U);
}

TEST(UdpSeal, AKeyIsForgottenWithTheSecondAfterIt) {
  constexpr std::uint64_t a_key = 10;
  Ends ends(a_key);
  const Datagram first = ends.closed("1"), second = ends.closed("2");
  while (ends.closed()[0] != std::byte{a_key}) {
  }
  EXPECT_EQ(ends.opened(ends.closed("b")), "b");
  EXPECT_EQ(ends.opened(first), "1") << "late, of the key before";
  while (ends.closed()[0] != std::byte{2 * a_key}) {
  }
  EXPECT_EQ(ends.opened(ends.closed("c")), "c");
  EXPECT_EQ(ends.opened(second), std::nullopt);
}

TEST(ReplayWindow, AgreesWithASetOfAllThatWasSeen) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    ReplayWindow window;
    std::set<std::uint64_t> seen;
    std::mt19937_64 random(seed);
    std::uint64_t newest = 0;
    EXPECT_FALSE(window.is_new(0));
    for (int i = 0; i < 20'000; ++i) {
      // Mostly near the newest, now and then far ahead: by less than the window, and by many of it.
      const std::uint64_t step = random() % 100 == 0 ? random() % (20 * ReplayWindow::size) : random() % 3;
      const std::uint64_t number =
          random() % 2 == 0 ? newest + step : newest - std::min(newest, random() % (ReplayWindow::size + 10));
      const bool too_old = newest >= ReplayWindow::size && number <= newest - ReplayWindow::size;
      const bool is_new = number > 0 && !too_old && !seen.contains(number);
      ASSERT_EQ(window.is_new(number), is_new) << seed << " " << i << " " << number << " " << newest;
      if (!is_new) continue;
      window.add(number);
      ASSERT_FALSE(window.is_new(number));
      seen.insert(number);
      newest = std::max(newest, number);
    }
  }
}

}  // namespace
}  // namespace ranvier::transport
