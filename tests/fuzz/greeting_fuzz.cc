// libFuzzer target: what arrives while ranks of the udp transport look for each other. The input is a list of
// datagrams, each behind a byte that says from which of a few addresses it comes and whether that address has read what
// was sent to it (the cookie is then the right one), one that says how much time has passed, and its length. No rank is
// where that was not shown, and nobody is sent more than he has sent before that.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ranvier/error.h"
#include "transport/udp_greeting.h"

namespace {

using namespace ranvier;
using namespace ranvier::transport;

constexpr std::uint64_t key = 5;
constexpr Rank self = 1, world = 4;

void require(bool held) {
  if (!held) std::abort();
}

std::vector<UdpAddress> addresses() {
  std::vector<UdpAddress> all(world);
  for (UdpAddress& each : all) {
    each.port = 4711;
    each.meeting.ips = {"127.0.0.2"};
  }
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const UdpSocket socket("127.0.0.1");
  static const std::array<SocketAddress, 4> places{*parse_address("127.0.0.2", 4711), *parse_address("127.0.0.2", 4712),
                                                   *parse_address("127.0.0.3", 4711),
                                                   *parse_address("127.0.0.4", 4711)};
  std::map<std::string, std::uint64_t> cookies;  // that were sent there
  std::size_t said = 0;                          // bytes, in answer to one datagram
  UdpGreeting greeting(
      {.rank = self, .world = world}, socket, addresses(),
      [&](std::size_t, const SocketAddress& to, const PacketHeader&, ConstBytes payload, std::size_t bytes) {
        require(payload.size() >= sizeof(std::uint64_t) && bytes <= PacketSize::base);
        std::memcpy(&cookies[to.text()], payload.data(), sizeof(std::uint64_t));
        said += std::max(sizeof(PacketHeader) + payload.size(), bytes);
      },
      [](const SocketAddress& address) { return address.text().starts_with("127.0.0.3"); });
  auto now = UdpGreeting::Time() + std::chrono::hours(1);
  std::array<bool, world> found{};
  std::span<const std::uint8_t> rest(data, size);
  for (int count = 0; rest.size() >= 4 && count < 200; ++count) {
    const SocketAddress& from = places[rest[0] / 2 % places.size()];
    const bool has_read = rest[0] % 2 != 0;
    now += std::chrono::milliseconds(rest[1]);
    const std::size_t length = std::min<std::size_t>(rest[2] | (rest[3] & 7) << 8, rest.size() - 4);
    std::vector<std::byte> datagram(length);
    if (length > 0) std::memcpy(datagram.data(), rest.data() + 4, length);
    rest = rest.subspan(4 + length);
    if (length >= sizeof key) std::memcpy(datagram.data(), &key, sizeof key);
    constexpr std::size_t echo_at = sizeof(PacketHeader) + sizeof(std::uint64_t);
    const auto cookie = cookies.find(from.text());
    const bool echoes = has_read && cookie != cookies.end() && length >= echo_at + sizeof(std::uint64_t);
    if (echoes) std::memcpy(datagram.data() + echo_at, &cookie->second, sizeof(std::uint64_t));

    try {
      greeting.say_hello(now);
    } catch (const Error& error) {
      require(error.kind() == ErrorKind::config);
      return 0;
    }
    Packet packet;
    if (!parse_packet(datagram, key, packet)) continue;
    const PacketHeader header = packet.header;
    // As the transport does before.
    const bool greets =
        header.kind == PacketKind::hello || header.kind == PacketKind::challenge || header.kind == PacketKind::welcome;
    if (header.from < 0 || header.from >= world || header.from == self || !greets) continue;
    said = 0;
    const auto known = greeting.take(now, packet, from);
    require(echoes || said <= length);
    if (!known) continue;
    require(echoes && !found[static_cast<std::size_t>(header.from)] && known->address.text() == from.text());
    found[static_cast<std::size_t>(header.from)] = true;
    require(known->connection.peer_ring_bytes <= UdpGreeting::largest_ring &&
            known->connection.ring_bytes <= UdpGreeting::largest_ring);
  }
  return 0;
}
