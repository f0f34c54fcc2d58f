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
#include <utility>
#include <vector>

#include "ranvier/error.h"
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
  static constexpr Secret one{std::byte{1}}, other{std::byte{2}};
  UdpSeal here_{{one, other}, 20}, there_{{other, one}, 20};
  inline static UdpSeal::Buffers buffers_;
  std::vector<std::byte> honest_;
  std::size_t said_ = 0;
};

// What a collective that may lose packets does with a connection: sends a message once and another one whole, and asks
// for those of a few tickets, of one size, whether they come or not.
class Partial {
 public:
  explicit Partial(UdpConnection& connection) : connection_(connection) { connection.take_partial_messages(); }

  void send(std::span<const std::byte> memory) {
    const std::size_t pieces = PartialMessages::pieces_of(memory.size());
    connection_.partial_sends().add(ticket_++, memory, {0, pieces});
    connection_.partial_sends().add_whole(ticket_++, memory, nullptr, {pieces / 2, pieces - pieces / 2});
    connection_.partial_sends().add_whole(ticket_ - 1, memory, nullptr, {0, pieces / 2});
  }
  void expect(UdpConnection::Time now, std::uint64_t ticket) {
    if (ticket < tickets) connection_.expect(now, ticket, bytes);
  }
  // Of the ticket that a packet named. A message that cannot be what is due ends the operation, and so the connection.
  bool receive(std::uint64_t ticket) {
    UdpPartialReceives& receives = connection_.partial_receives();
    if (ticket >= tickets || taken_[ticket]) return true;
    try {
      const auto arrival = receives.arrival(ticket, bytes);
      const auto here = receives.message(ticket, bytes).arrived;
      require(here.size() == PartialMessages::pieces_of(bytes));
      require(arrival.pieces == static_cast<std::size_t>(std::ranges::count(here, 1)));
      if (arrival.pieces < here.size()) return true;
      auto message = receives.take(ticket, bytes);
      require(message.bytes.size() >= bytes && message.pieces == here.size());
      receives.give_back(std::move(message));
      return taken_[ticket] = true;
    } catch (const Error& error) {
      require(error.kind() == ErrorKind::mismatch);
      return false;
    }
  }

 private:
  static constexpr std::size_t tickets = 8;
  static constexpr std::size_t bytes = 2500;
  UdpConnection& connection_;
  std::uint64_t ticket_ = 0;
  std::array<bool, tickets> taken_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  UdpConnection connection({.self = 0, .peer_key = 1, .ring_bytes = ring, .peer_ring_bytes = ring});
  auto now = UdpConnection::Time() + std::chrono::hours(1);
  std::array<std::byte, 3000> memory{};
  OutgoingPacket outgoing;
  Sealed sealed;
  Partial partial(connection);
  partial.send(memory);
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
    if (parse_packet(datagram, key, packet)) {
      connection.receive(now, packet, now);
      const auto ticket = static_cast<std::uint32_t>(packet.header.offset >> 32);
      if (packet.header.kind == PacketKind::partial && count % 4 == 1) partial.expect(now, ticket);
      if (packet.header.kind == PacketKind::partial && count % 2 == 0 && !partial.receive(ticket)) return 0;
    }
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
