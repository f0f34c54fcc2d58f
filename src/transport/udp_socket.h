// A UDP socket that moves many packets with one system call: sendmmsg(2) and recvmmsg(2), and where the kernel has them
// (4.18, 5.0) segmentation and its opposite, by which it takes and gives up to 64 KiB of packets of one size as one
// (UDP_SEGMENT and UDP_GRO, udp(7)). Packets are never cut up on their way: path-MTU discovery is packet_size.h's.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/socket.h"
#include "ranvier/types.h"
#include "transport/udp_connection.h"

struct msghdr;
struct timespec;

namespace ranvier::transport {

class UdpSocket {
 public:
  // On the first free one of `ports`. `interface`: the address, or what has it, to be reached at; empty: all. Throws
  // Error{config}.
  explicit UdpSocket(const std::string& interface, const PortRange& ports = {});

  const Fd& descriptor() const { return socket_; }
  std::uint16_t port() const { return local_address(socket_).port(); }
  // What the kernel holds of packets that have arrived, at least.
  std::size_t receive_bytes() const { return receive_bytes_; }
  // The address as this socket sends to it; empty if it cannot, as from an IPv4 address to an IPv6 one.
  std::optional<SocketAddress> reachable(const std::string& ip, std::uint16_t port) const;

  static constexpr std::size_t most_at_once = 64;  // packets
  // False if one of them is larger than the first link takes. Packets that the kernel has no room for are lost, as they
  // may be anywhere on their way. `one_by_one`: it is not to hand several to a device as one.
  bool send(const SocketAddress& to, std::span<const OutgoingPacket> packets, bool one_by_one = false);

  // A datagram that was read, and when it had arrived, as the kernel notes it: however long nobody looked.
  struct Arrival {
    ConstBytes bytes;
    const SocketAddress& from;
    std::chrono::steady_clock::time_point read, arrived;
  };
  // Calls `arrived` for what has arrived. Returns how often the kernel gave something; that was all of it if less than
  // most_received.
  static constexpr std::size_t most_received = 8;
  std::size_t receive(const std::function<void(const Arrival&)>& arrived);

  // Sleeps until something has arrived, `event` is signalled, or the time is up. Whether it was signalled.
  bool wait(const Fd& event, std::chrono::nanoseconds limit) const;
  // The same, whatever arrives.
  static bool rest(const Fd& event, std::chrono::nanoseconds limit);

 private:
  struct SendBuffers;
  struct ReceiveBuffers;

  bool send_some(const SocketAddress& to, std::span<const OutgoingPacket> packets, bool segmented);
  // `day`: the clock of the day when it was read.
  std::chrono::steady_clock::time_point arrival(const msghdr&, const timespec& day,
                                                std::chrono::steady_clock::time_point read);

  Fd socket_;
  bool six_ = false;
  bool takes_both_ = false;  // IPv4 addresses, too, in words of IPv6: of no address of this host alone
  bool segments_ = false;    // the kernel has UDP_SEGMENT
  std::size_t receive_bytes_ = 0;
  std::shared_ptr<SendBuffers> sending_;
  std::shared_ptr<ReceiveBuffers> receiving_;
  std::chrono::steady_clock::time_point last_arrived_{};
};

// What the kernel knows of the way to an address: the MTU of the first link, or a smaller one that a router told it.
std::optional<std::size_t> path_mtu(const std::string& ip);
std::size_t ip_headers(const std::string& ip);  // with UDP's
// The largest packet that such a way takes, without these headers.
std::size_t first_link_bytes(const std::string& ip);
// Of a way that takes less than udp needs: what its MTU is, and what to do.
std::string mtu_complaint(const std::string& ip);
std::string ip_of(const SocketAddress&);

}  // namespace ranvier::transport
