#include "transport/udp_packet.h"

#include <cstring>

namespace ranvier::transport {
namespace {

constexpr std::size_t limits_offset = 20;

}  // namespace

std::size_t write_packet_head(const PacketHeader& header, const Acknowledgement& acknowledgement,
                              std::array<std::byte, most_packet_head>& out) {
  std::memcpy(out.data(), &header, sizeof header);
  if (header.ranges == 0) return sizeof header;
  const std::array<std::uint32_t, 5> first{acknowledgement.delay_us, acknowledgement.asked_below,
                                           acknowledgement.arrived_us, acknowledgement.line_rate,
                                           acknowledgement.senders};
  std::memcpy(out.data() + sizeof header, first.data(), limits_offset);
  std::memcpy(out.data() + sizeof header + limits_offset, acknowledgement.limits.data(), sizeof acknowledgement.limits);
  std::memcpy(out.data() + sizeof header + Acknowledgement::fixed_bytes, acknowledgement.ranges.data(),
              acknowledgement.count * sizeof(NumberRange));
  return sizeof header + acknowledgement.bytes();
}

bool parse_packet(ConstBytes datagram, std::uint64_t key, Packet& packet) {
  PacketHeader& header = packet.header;
  if (datagram.size() < sizeof header) return false;
  std::memcpy(&header, datagram.data(), sizeof header);
  datagram = datagram.subspan(sizeof header);
  if (header.key != key || header.version != udp_version || static_cast<std::uint8_t>(header.kind) >= packet_kinds ||
      header.lane >= lane_count || header.ranges > most_ack_ranges)
    return false;

  Acknowledgement& acknowledgement = packet.acknowledgement;
  acknowledgement.count = header.ranges;
  if (header.ranges > 0) {
    if (datagram.size() < acknowledgement.bytes()) return false;
    std::array<std::uint32_t, 5> first{};
    std::memcpy(first.data(), datagram.data(), limits_offset);
    acknowledgement.delay_us = first[0];
    acknowledgement.asked_below = first[1];
    acknowledgement.arrived_us = first[2];
    acknowledgement.line_rate = first[3];
    acknowledgement.senders = first[4];
    std::memcpy(acknowledgement.limits.data(), datagram.data() + limits_offset, sizeof acknowledgement.limits);
    std::memcpy(acknowledgement.ranges.data(), datagram.data() + Acknowledgement::fixed_bytes,
                acknowledgement.count * sizeof(NumberRange));
    datagram = datagram.subspan(acknowledgement.bytes());
    for (std::size_t i = 0; i < acknowledgement.count; ++i) {
      if (acknowledgement.ranges[i].empty()) return false;
      if (i > 0 && acknowledgement.ranges[i].end >= acknowledgement.ranges[i - 1].begin) return false;
    }
  }
  if (datagram.size() != header.payload) return false;
  if (asks_for_acknowledgement(header) && (header.number == 0 || header.behind >= header.number)) return false;
  packet.payload = datagram;
  return true;
}

}  // namespace ranvier::transport
