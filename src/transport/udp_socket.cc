#include "transport/udp_socket.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/uio.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/forked.h"
#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

// Of glibc 2.36 <netinet/udp.h> has UDP_SEGMENT and UDP_GRO; older ones lack them though the kernel may not.
constexpr int udp_segment = 103;
constexpr int udp_gro = 104;
constexpr int kernel_buffer_bytes = 8 << 20;
constexpr std::size_t most_segmented = 65'000;  // bytes in one call's message, below IPv4's 65,535 with headers
constexpr std::size_t most_payload = 65'507;
constexpr std::size_t headers_four = 28;  // IPv4 and UDP
constexpr std::size_t headers_six = 48;

bool set(const Fd& socket, int level, int name, int value) {
  return setsockopt(socket.get(), level, name, &value, sizeof value) == 0;
}

int get(const Fd& socket, int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(socket.get(), level, name, &value, &size) == 0 ? value : -1;
}

// Whether the first of them is ready.
bool sleep(std::span<pollfd> descriptors, std::chrono::nanoseconds limit) {
  limit = std::clamp<std::chrono::nanoseconds>(limit, std::chrono::nanoseconds(0), std::chrono::hours(1));
  const auto seconds = std::chrono::floor<std::chrono::seconds>(limit);
  const timespec time{.tv_sec = seconds.count(), .tv_nsec = (limit - seconds).count()};
  return ppoll(descriptors.data(), descriptors.size(), &time, nullptr) > 0 && descriptors.front().revents != 0;
}

Fd open_socket(int family) {
  Fd opened(socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  close_in_forked(opened.get());  // its port is to be free when this process is gone
  return opened;
}

}  // namespace

struct UdpSocket::SendBuffers {
  std::array<mmsghdr, most_at_once> messages;
  std::array<iovec, 2 * most_at_once> pieces;
  struct alignas(cmsghdr) Control {
    std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> bytes;
  };
  std::array<Control, most_at_once> controls;
};

struct UdpSocket::ReceiveBuffers {
  std::array<mmsghdr, most_received> messages{};
  std::array<iovec, most_received> pieces{};
  std::array<SocketAddress, most_received> from;
  struct alignas(cmsghdr) Control {
    std::array<char, CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(timespec))> bytes;
  };
  std::array<Control, most_received> controls;
  std::vector<std::byte> memory = std::vector<std::byte>(most_received * (64 << 10));
};

UdpSocket::UdpSocket(const std::string& interface, const PortRange& ports)
    : sending_(std::make_shared<SendBuffers>()), receiving_(std::make_shared<ReceiveBuffers>()) {
  const std::string ip = address_of(interface);
  const auto bound = [&](const std::string& address_text) {
    const auto address = parse_address(address_text, 0);
    if (!address) return errno = EINVAL, false;
    six_ = address->storage.ss_family == AF_INET6;
    socket_ = open_socket(address->storage.ss_family);
    if (!socket_) return false;
    takes_both_ = six_ && ip.empty() && set(socket_, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    for (int port = ports.first; port <= ports.last; ++port) {
      const auto tried = parse_address(address_text, static_cast<std::uint16_t>(port));
      if (bind(socket_.get(), reinterpret_cast<const sockaddr*>(&tried->storage), tried->size) == 0) return true;
      if (errno != EADDRINUSE && errno != EACCES) return false;
    }
    return false;
  };
  const bool is_bound = ip.empty() ? bound("::") || bound("0.0.0.0") : bound(ip);
  if (!is_bound && ports.first != 0 && (errno == EADDRINUSE || errno == EACCES))
    throw Error(ErrorKind::config,
                fmt::format("no UDP port from {} to {} is free on {} ({}); name other ones, one for each rank of this "
                            "host",
                            ports.first, ports.last, ip.empty() ? "this host" : ip, std::strerror(errno)));
  if (!is_bound)
    throw Error(ErrorKind::config,
                fmt::format("cannot open a UDP port on {}: {}; this host has: {}", ip.empty() ? "this host" : ip,
                            std::strerror(errno), fmt::join(host_addresses(), ", ")));
  for (const auto& [forced, plain] : {std::pair{SO_RCVBUFFORCE, SO_RCVBUF}, std::pair{SO_SNDBUFFORCE, SO_SNDBUF}})
    if (!set(socket_, SOL_SOCKET, forced, kernel_buffer_bytes)) set(socket_, SOL_SOCKET, plain, kernel_buffer_bytes);
  // The kernel counts its own bookkeeping too and reports twice what it was asked for (socket(7)).
  receive_bytes_ = static_cast<std::size_t>(std::max(get(socket_, SOL_SOCKET, SO_RCVBUF), 4096)) / 2;
  set(socket_, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
  if (six_) set(socket_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE);
  segments_ = get(socket_, IPPROTO_UDP, udp_segment) >= 0;
  set(socket_, IPPROTO_UDP, udp_gro, 1);  // where the kernel lacks it, packets come one by one
  set(socket_, SOL_SOCKET, SO_TIMESTAMPNS, 1);
  for (std::size_t i = 0; i < most_received; ++i) {
    receiving_->pieces[i] = {receiving_->memory.data() + i * (64 << 10), 64 << 10};
    receiving_->messages[i].msg_hdr.msg_iov = &receiving_->pieces[i];
    receiving_->messages[i].msg_hdr.msg_iovlen = 1;
    receiving_->messages[i].msg_hdr.msg_name = &receiving_->from[i].storage;
    receiving_->messages[i].msg_hdr.msg_control = receiving_->controls[i].bytes.data();
  }
}

std::optional<SocketAddress> UdpSocket::reachable(const std::string& ip, std::uint16_t port) const {
  auto address = parse_address(ip, port);
  if (address && takes_both_ && address->storage.ss_family == AF_INET) address = parse_address("::ffff:" + ip, port);
  if (address && (address->storage.ss_family == AF_INET6) != six_) return std::nullopt;
  return address;
}

bool UdpSocket::send(const SocketAddress& to, std::span<const OutgoingPacket> packets, bool one_by_one) {
  const bool segmented = segments_ && !one_by_one;
  for (; packets.size() > most_at_once; packets = packets.subspan(most_at_once))
    if (!send_some(to, packets.first(most_at_once), segmented)) return false;
  return send_some(to, packets, segmented);
}

bool UdpSocket::send_some(const SocketAddress& to, std::span<const OutgoingPacket> packets, bool segmented) {
  SendBuffers& buffers = *sending_;
  std::array<std::size_t, most_at_once> counts;  // packets by message
  std::size_t messages = 0, used = 0;
  for (std::size_t i = 0; i < packets.size(); ++messages) {
    const std::size_t size = packets[i].bytes();
    std::size_t total = 0, count = 0;
    iovec* const first = buffers.pieces.data() + used;
    for (; i + count < packets.size() && (count == 0 || (segmented && total + size <= most_segmented)); ++count) {
      const OutgoingPacket& packet = packets[i + count];
      if (packet.bytes() > size) break;
      // The kernel only reads what a sendmmsg points at, whatever iovec says.
      buffers.pieces[used++] = {const_cast<std::byte*>(packet.head.data()), packet.head_bytes};
      if (!packet.payload.empty())
        buffers.pieces[used++] = {const_cast<std::byte*>(packet.payload.data()), packet.payload.size()};
      total += packet.bytes();
      if (packet.bytes() < size) {  // only the last one may be smaller
        ++count;
        break;
      }
    }
    msghdr& message = buffers.messages[messages].msg_hdr;
    message = {};
    message.msg_name = const_cast<sockaddr_storage*>(&to.storage);
    message.msg_namelen = to.size;
    message.msg_iov = first;
    message.msg_iovlen = static_cast<std::size_t>(buffers.pieces.data() + used - first);
    if (count > 1) {
      auto& control = buffers.controls[messages];
      message.msg_control = control.bytes.data();
      message.msg_controllen = control.bytes.size();
      cmsghdr* const segment = CMSG_FIRSTHDR(&message);
      segment->cmsg_level = IPPROTO_UDP;
      segment->cmsg_type = udp_segment;
      segment->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
      const auto segment_bytes = static_cast<std::uint16_t>(size);
      std::memcpy(CMSG_DATA(segment), &segment_bytes, sizeof segment_bytes);
    }
    counts[messages] = count;
    i += count;
  }

  std::size_t packet = 0;
  for (std::size_t done = 0; done < messages;) {
    const int taken = sendmmsg(socket_.get(), &buffers.messages[done], static_cast<unsigned>(messages - done),
                               MSG_DONTWAIT | MSG_NOSIGNAL);
    if (taken > 0) {
      for (int k = 0; k < taken; ++k) packet += counts[done++];
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EMSGSIZE) return false;
    if (counts[done] > 1 && (errno == EIO || errno == EINVAL)) {
      // EIO: a device on the way computes no checksums of segments. EINVAL: a segment is larger than the link takes,
      // which the packet by itself will show.
      if (errno == EIO) segments_ = false;
      return send_some(to, packets.subspan(packet), false);
    }
    packet += counts[done++];  // no room, or no route just now
  }
  return true;
}

// The kernel tells it by the clock of the day, which somebody may set meanwhile: so it is never before the last one,
// nor after it was read.
std::chrono::steady_clock::time_point UdpSocket::arrival(const msghdr& message, const timespec& day,
                                                         std::chrono::steady_clock::time_point read) {
  for (const cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(each))) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec at{};
    std::memcpy(&at, CMSG_DATA(each), sizeof at);
    const auto ago = std::chrono::seconds(day.tv_sec - at.tv_sec) + std::chrono::nanoseconds(day.tv_nsec - at.tv_nsec);
    return last_arrived_ = std::clamp<std::chrono::steady_clock::time_point>(read - ago, last_arrived_, read);
  }
  return last_arrived_ = read;
}

std::size_t UdpSocket::receive(const std::function<void(const Arrival&)>& arrived) {
  ReceiveBuffers& buffers = *receiving_;
  for (std::size_t i = 0; i < most_received; ++i) {
    buffers.messages[i].msg_hdr.msg_namelen = sizeof(sockaddr_storage);
    buffers.messages[i].msg_hdr.msg_controllen = buffers.controls[i].bytes.size();
  }
  const int count = recvmmsg(socket_.get(), buffers.messages.data(), most_received, MSG_DONTWAIT, nullptr);
  if (count <= 0) return 0;
  // In this order, and once for all of them: whatever keeps this thread from its core between the two makes them later
  // and none earlier than it came, by which a path would seem shorter than it is.
  timespec day{};
  clock_gettime(CLOCK_REALTIME, &day);
  const auto read = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    const auto index = static_cast<std::size_t>(i);
    mmsghdr& message = buffers.messages[index];
    buffers.from[index].size = message.msg_hdr.msg_namelen;
    std::size_t segment = message.msg_len;
    for (cmsghdr* each = CMSG_FIRSTHDR(&message.msg_hdr); each != nullptr; each = CMSG_NXTHDR(&message.msg_hdr, each)) {
      int size = 0;
      if (each->cmsg_level != IPPROTO_UDP || each->cmsg_type != udp_gro) continue;
      std::memcpy(&size, CMSG_DATA(each), sizeof size);
      if (size > 0) segment = static_cast<std::size_t>(size);
    }
    const auto arrived_at = arrival(message.msg_hdr, day, read);
    ConstBytes rest(static_cast<const std::byte*>(buffers.pieces[index].iov_base), message.msg_len);
    while (!rest.empty()) {
      const std::size_t bytes = std::min(segment, rest.size());
      arrived({rest.first(bytes), buffers.from[index], read, arrived_at});
      rest = rest.subspan(bytes);
    }
  }
  return static_cast<std::size_t>(count);
}

bool UdpSocket::wait(const Fd& event, std::chrono::nanoseconds limit) const {
  std::array descriptors{pollfd{event.get(), POLLIN, 0}, pollfd{socket_.get(), POLLIN, 0}};
  return sleep(descriptors, limit);
}

bool UdpSocket::rest(const Fd& event, std::chrono::nanoseconds limit) {
  std::array descriptors{pollfd{event.get(), POLLIN, 0}};
  return sleep(descriptors, limit);
}

std::optional<std::size_t> path_mtu(const std::string& ip) {
  const auto address = parse_address(ip, 9);  // no packet goes there
  if (!address) return std::nullopt;
  const bool six = address->storage.ss_family == AF_INET6;
  const Fd socket = open_socket(address->storage.ss_family);
  if (!socket || connect(socket.get(), reinterpret_cast<const sockaddr*>(&address->storage), address->size) != 0)
    return std::nullopt;
  const int bytes = six ? get(socket, IPPROTO_IPV6, IPV6_MTU) : get(socket, IPPROTO_IP, IP_MTU);
  return bytes > 0 ? std::optional(static_cast<std::size_t>(bytes)) : std::nullopt;
}

std::size_t ip_headers(const std::string& ip) {
  return ip.find(':') != ip.npos && !ip.starts_with("::ffff:") ? headers_six : headers_four;
}

std::size_t first_link_bytes(const std::string& ip) {
  const std::size_t mtu = path_mtu(ip).value_or(0), headers = ip_headers(ip);
  if (mtu < headers + PacketSize::least) return PacketSize::base;
  return std::min(mtu - headers, most_payload);
}

std::string ip_of(const SocketAddress& address) {
  const std::string shown = address.text();
  return shown.starts_with('[') ? shown.substr(1, shown.rfind(']') - 1) : shown.substr(0, shown.rfind(':'));
}

// The kernel knows of the first link, and may have been told by a router on the way what that takes (RFC 1191).
std::string mtu_complaint(const std::string& ip) {
  const std::size_t needed = PacketSize::base + ip_headers(ip), told = path_mtu(ip).value_or(needed);
  return fmt::format("a link on the way has an MTU {}; give all of them an MTU of {} or more, or use transport tcp",
                     told < needed ? fmt::format("of {}", told) : "below that", needed);
}

}  // namespace ranvier::transport
