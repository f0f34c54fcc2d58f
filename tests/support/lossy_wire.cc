#include "support/lossy_wire.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "transport/udp_packet.h"

namespace ranvier::support {
namespace {

std::mutex lost_mutex;
std::map<std::uint64_t, int> lost_before;  // by what they carry

bool is_lost(const std::vector<std::byte>& packet) {
  transport::PacketHeader header;
  if (lost_share == 0 || packet.size() <= sizeof header) return false;
  std::memcpy(&header, packet.data(), sizeof header);
  if (header.kind != transport::PacketKind::partial) return false;
  // Of what has to be whole some has to arrive, or the test waits for one timeout after the other.
  const bool is_sent_once = (header.offset >> 32) % 2 == 0;
  if (lost_share == 1 && !is_sent_once) return false;
  if (times_lost > 1 && is_sent_once) return false;
  std::uint64_t mixed = header.offset * 0x9E3779B97F4A7C15 + static_cast<std::uint64_t>(header.from);
  for (std::size_t i = packet.size() - header.payload;
       i + 8 <= packet.size() && i < packet.size() - header.payload + 64; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, packet.data() + i, sizeof word);
    mixed = (mixed ^ word) * 0xFF51AFD7ED558CCD;
    mixed ^= mixed >> 32;
  }
  if (static_cast<double>(mixed >> 11) * 0x1p-53 >= lost_share) return false;
  const std::lock_guard lock(lost_mutex);
  return ++lost_before[mixed] <= times_lost;
}

std::size_t segment_of(msghdr& message, std::size_t whole) {
  constexpr int udp_segment = 103;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr; each = CMSG_NXTHDR(&message, each)) {
    std::uint16_t bytes = 0;
    if (each->cmsg_level != IPPROTO_UDP || each->cmsg_type != udp_segment) continue;
    std::memcpy(&bytes, CMSG_DATA(each), sizeof bytes);
    return bytes;
  }
  return whole;
}

}  // namespace

void forget_what_was_lost() {
  const std::lock_guard lock(lost_mutex);
  lost_before.clear();
}

}  // namespace ranvier::support

// In front of the C library's: packet by packet, but for those that are lost.
extern "C" int sendmmsg(int socket, mmsghdr* messages, unsigned count, int flags) {
  using namespace ranvier::support;
  for (unsigned i = 0; i < count; ++i) {
    msghdr& message = messages[i].msg_hdr;
    std::vector<std::byte> bytes;
    for (std::size_t k = 0; k < message.msg_iovlen; ++k) {
      const auto* from = static_cast<const std::byte*>(message.msg_iov[k].iov_base);
      bytes.insert(bytes.end(), from, from + message.msg_iov[k].iov_len);
    }
    const std::size_t segment = segment_of(message, bytes.size());
    for (std::size_t at = 0; at < bytes.size(); at += segment) {
      const std::vector<std::byte> packet(
          bytes.begin() + static_cast<std::ptrdiff_t>(at),
          bytes.begin() + static_cast<std::ptrdiff_t>(std::min(at + segment, bytes.size())));
      if (!is_lost(packet))
        syscall(SYS_sendto, socket, packet.data(), packet.size(), flags, message.msg_name, message.msg_namelen);
    }
  }
  return static_cast<int>(count);
}
