// libFuzzer target: what arrives at a udp connection. The input is a list of datagrams, each behind its length and a
// byte that says how much time passes before it; they show the right key, as those of a mad peer would. A connection
// that believes no nonsense never offers more than its ring, never sends a packet larger than the link takes, and never
// crashes; a seal opens none of them, and still opens what the other end of it has closed.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "transport/udp_connection.h"
#include "transport/udp_seal.h"

namespace {

using namespace ranvier;
using namespace ranvier::transport;

constexpr std::uint64_t key = 5;
constexpr std::size_t ring = 64 << 10;

void require(bool held) {
  if (!held) std::abort();
}

// Of one end: what the input makes of its datagrams, and whether the other end can still be understood.
class Sealed {
 public:
  void hear(std::span<const std::byte> datagram) {
    if (honest_ != std::vector<std::byte>(datagram.begin(), datagram.end()))
      require(here_.open(datagram, key, buffers_).empty());
  }
  void say(const OutgoingPacket& packet) {
    OutgoingPacket copy = packet;
    const std::size_t bytes = packet.bytes();
    there_.close(std::span(&copy, 1), buffers_);
    honest_.assign(copy.head.begin(), copy.head.begin() + static_cast<std::ptrdiff_t>(copy.head_bytes));
    honest_.insert(honest_.end(), copy.payload.begin(), copy.payload.end());
    require(honest_.size() == bytes + UdpSeal::bytes);
    std::vector<std::byte> damaged = honest_;
    damaged[said_ % damaged.size()] ^= std::byte{1};
    require(here_.open(damaged, key, buffers_).empty());
    require(here_.open(honest_, key, buffers_).size() == bytes);
    require(here_.open(honest_, key, buffers_).empty());
    ++said_;
  }

 private:
  static constexpr UdpSecret one{std::byte{1}}, other{std::byte{2}};
  UdpSeal here_{{one, other}, 20}, there_{{other, one}, 20};
  inline static UdpSeal::Buffers buffers_;
  std::vector<std::byte> honest_;
  std::size_t said_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  UdpConnection connection({.self = 0, .peer_key = 1, .ring_bytes = ring, .peer_ring_bytes = ring});
  auto now = UdpConnection::Time() + std::chrono::hours(1);
  std::array<std::byte, 3000> memory{};
  OutgoingPacket outgoing;
  Sealed sealed;
  std::span<const std::uint8_t> rest(data, size);
  for (int count = 0; rest.size() >= 3 && count < 200; ++count) {
    const std::size_t length = std::min<std::size_t>(rest[0] | (rest[1] & 7) << 8, rest.size() - 3);
    now += std::chrono::microseconds(rest[2] * rest[2]);
    std::vector<std::byte> datagram(length);
    if (length > 0) std::memcpy(datagram.data(), rest.data() + 3, length);
    rest = rest.subspan(3 + length);
    sealed.hear(datagram);
    if (length >= sizeof key) std::memcpy(datagram.data(), &key, sizeof key);

    connection.try_send(static_cast<Lane>(count % lane_count), {}, memory);
    Packet packet;
    if (parse_packet(datagram, key, packet)) connection.receive(now, packet);
    connection.on_time(now);
    for (int sent = 0; sent < 100 && connection.next_packet(now, outgoing); ++sent)
      require(outgoing.bytes() <= PacketSize::base);
    if (outgoing.head_bytes > 0) sealed.say(outgoing);
    for (Lane lane = 0; lane < lane_count; ++lane) {
      const std::size_t ready = connection.view(lane).size();
      require(ready <= ring);
      connection.release(lane, ready / 2);
    }
    connection.due(now);
  }
  return 0;
}
