// libFuzzer target: what arrives at a udp connection. The input is a list of datagrams, each behind its length and a byte
// that says how much time passes before it; they show the right key, as those of a mad peer would. A connection that
// believes no nonsense never offers more than its ring, never sends a packet larger than the link takes, and never
// crashes.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "transport/udp_connection.h"

namespace {

using namespace ranvier;
using namespace ranvier::transport;

constexpr std::uint64_t key = 5;
constexpr std::size_t ring = 64 << 10;

void require(bool held) {
  if (!held) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  UdpConnection connection({.self = 0, .peer_key = 1, .ring_bytes = ring, .peer_ring_bytes = ring});
  auto now = UdpConnection::Time() + std::chrono::hours(1);
  std::array<std::byte, 3000> memory{};
  OutgoingPacket outgoing;
  std::span<const std::uint8_t> rest(data, size);
  for (int count = 0; rest.size() >= 3 && count < 200; ++count) {
    const std::size_t length = std::min<std::size_t>(rest[0] | (rest[1] & 7) << 8, rest.size() - 3);
    now += std::chrono::microseconds(rest[2] * rest[2]);
    std::vector<std::byte> datagram(length);
    if (length > 0) std::memcpy(datagram.data(), rest.data() + 3, length);
    rest = rest.subspan(3 + length);
    if (length >= sizeof key) std::memcpy(datagram.data(), &key, sizeof key);

    connection.try_send(static_cast<Lane>(count % lane_count), {}, memory);
    Packet packet;
    if (parse_packet(datagram, key, packet)) connection.receive(now, packet);
    connection.on_time(now);
    for (int sent = 0; sent < 100 && connection.next_packet(now, outgoing); ++sent)
      require(outgoing.bytes() <= PacketSize::base);
    for (Lane lane = 0; lane < lane_count; ++lane) {
      const std::size_t ready = connection.view(lane).size();
      require(ready <= ring);
      connection.release(lane, ready / 2);
    }
    connection.due(now);
  }
  return 0;
}
