// What a datagram of the udp transport looks like: a header, an acknowledgement where one is due, and bytes of one
// lane.
//
//     0   key          8  the first bytes of the receiver's token: who does not know it is a stranger
//     8   number       8  of this packet between the two ranks, from 1; a packet sent again gets a new one
//     16  offset       8  where in the lane the payload begins
//     24  from         4  the sending rank
//     28  behind       4  so many numbers before this one the sender no longer asks about any
//     32  payload      2  bytes at the end
//     34  epoch        2
//     36  version      1
//     37  kind         1
//     38  lane         1  its highest bit: the packet left right behind the one before it
//     39  ranges       1  of the acknowledgement; 0: there is none
//
// An acknowledgement: how long it was held back (4, in microseconds), the ticket below which all messages that are sent
// once have been asked for (4), when the newest packet arrived by a clock of the receiver's (4, in microseconds), what
// the line carries (4, in bytes a millisecond; 0: nothing new, see line_rate.h), how many ranks send to this one (4),
// how far each lane may send (8 each), then the ranges of packet numbers that have arrived, newest first (8 +
// 8 each). Numbers that are never used twice make every acknowledgement say which transmission it means, as in QUIC (J.
// Iyengar, M. Thomson, RFC 9000, 2021): there is no ambiguity of round trips, which Karn's rule has to leave out, and a
// late packet shows itself.
//
// In host byte order, as the other transports: a machine of the other order sends a wrong key.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "ranvier/transport.h"
#include "transport/number_ranges.h"

namespace ranvier::transport {

inline constexpr std::uint8_t udp_version = 4;

enum class PacketKind : std::uint8_t {
  data,      // bytes of a lane; without any, only an acknowledgement
  probe,     // asks to be acknowledged; its payload is padding that shows what size of packet gets through
  hello,     // see udp_greeting.h; offset: bytes that the sender's socket holds; number: its lanes' rings
  welcome,   // likewise
  goodbye,   // nothing will follow, and nothing will be answered
  partial,   // pieces of a message that is sent once; offset: the lower half of its ticket, then the first piece
  challenge  // as hello
};
inline constexpr std::uint8_t packet_kinds = 7;

struct PacketHeader {
  std::uint64_t key = 0;
  std::uint64_t number = 0;
  std::uint64_t offset = 0;
  Rank from = 0;
  std::uint32_t behind = 0;
  std::uint16_t payload = 0;
  Epoch epoch = 0;
  std::uint8_t version = udp_version;
  PacketKind kind = PacketKind::data;
  Lane lane : 7 = 0;
  Lane follows : 1 = 0;
  std::uint8_t ranges = 0;
};
static_assert(sizeof(PacketHeader) == 40 && std::is_trivially_copyable_v<PacketHeader>);

inline constexpr std::size_t most_ack_ranges = 32;

struct Acknowledgement {
  std::uint32_t delay_us = 0;
  std::uint32_t asked_below = 0;                      // see udp_partial.h; the lower half
  std::uint32_t arrived_us = 0;                       // by the receiver's clock, when the newest packet did
  std::uint32_t line_rate = 0;                        // bytes a millisecond
  std::uint32_t senders = 0;                          // ranks that lately sent bytes to the receiver
  std::array<std::uint64_t, lane_count> limits{};     // the offset up to which the peer may send, by lane
  std::array<NumberRange, most_ack_ranges> ranges{};  // newest first
  std::size_t count = 0;

  static constexpr std::size_t fixed_bytes = 20 + 8 * lane_count;  // without the ranges
  std::size_t bytes() const { return fixed_bytes + count * sizeof(NumberRange); }
};

// The largest that stands before the payload.
inline constexpr std::size_t most_packet_head =
    sizeof(PacketHeader) + Acknowledgement::fixed_bytes + most_ack_ranges * sizeof(NumberRange);

struct Packet {
  PacketHeader header;
  Acknowledgement acknowledgement;  // where header.ranges > 0
  ConstBytes payload;
};

// Whether the other side is to say that it has arrived.
inline bool asks_for_acknowledgement(const PacketHeader& header) {
  const bool carries = header.kind == PacketKind::data || header.kind == PacketKind::partial;
  return header.kind == PacketKind::probe || (carries && header.payload > 0);
}

// Writes header and acknowledgement (header.ranges of it) and returns how many bytes that took.
std::size_t write_packet_head(const PacketHeader&, const Acknowledgement&, std::array<std::byte, most_packet_head>&);

// Of a whole datagram that shows `key`; false for anything else, whatever it is. All lengths and ranges of what it
// returns are consistent; that they make sense between these two ranks is for the connection to check.
bool parse_packet(ConstBytes datagram, std::uint64_t key, Packet&);

}  // namespace ranvier::transport
