// How the ranks of the udp transport learn where the others are: a machine, as a connection is, that is told what
// arrives and says what to send. The higher rank of two calls, at all the other's addresses at once.
//
//     hello      a, 0    ->                     a, b: cookies
//                        <-    challenge  b, a  for anybody may have heard that hello, and sent it again from elsewhere
//     hello      a, b    ->                     who knows b receives where it was sent: the caller is there
//                        <-    welcome    b, a  and the called one here
//
// The second hello and the welcome are as large as the packets that follow them, as QUIC's first ones are (RFC 9000,
// 14.1): where a narrower link lies in between, small ones are answered and those are not, which is told at once.
// A challenge is answered so by whoever it was meant for; from anywhere else it is taken for news of an address to
// call.
//
// From the second hello to the welcome it is one round trip. Where several challenges were answered nobody knows which
// answer is welcomed, and none is measured (P. Karn and C. Partridge, "Improving Round-Trip Time Estimates in Reliable
// Transport Protocols", SIGCOMM 1987).
//
// That a hello is sealed shows who wrote it and not where it comes from, so no address is believed before it has
// echoed its cookie. That is a keyed hash of the address: nothing is kept of those who ask (D. J. Bernstein, "SYN
// cookies", 1996; RFC 9000, 8.1).
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/socket.h"
#include "ranvier/transport.h"
#include "transport/udp_address.h"
#include "transport/udp_connection.h"
#include "transport/udp_packet.h"
#include "transport/udp_socket.h"

namespace ranvier::transport {

class UdpGreeting {
 public:
  using Time = UdpConnection::Time;
  using Duration = UdpConnection::Duration;
  // `bytes`: what the datagram is padded to as it leaves.
  using Send = std::function<void(std::size_t rank, const SocketAddress& to, const PacketHeader&, ConstBytes payload,
                                  std::size_t bytes)>;

  using IsOwn = std::function<bool(const SocketAddress&)>;

  // `addresses` by rank; `send` is called by say_hello() and take(); `is_own` tells this host's addresses.
  UdpGreeting(const WorldInfo&, const UdpSocket&, const std::vector<UdpAddress>& addresses, Send send,
              IsOwn is_own = ranvier::is_own);

  // Calls those whose turn it is. Returns when to come again. Throws Error{config} for a path that takes small packets
  // only.
  Time say_hello(Time now);

  // A rank whose place is proven now, and how to talk to it; the round trip if this rank has called and no other answer
  // of its can have brought the welcome.
  struct Found {
    SocketAddress address;
    UdpConnectionOptions connection;
    std::optional<Duration> round_trip;
  };
  // A parsed packet of another rank of this job, kind hello, challenge or welcome.
  std::optional<Found> take(Time now, const Packet&, const SocketAddress& from);

  // The most that can be under way on a lane: 8 MiB fill 1 Gbit/s over 60 ms. Pages that are never used cost nothing.
  static constexpr std::size_t largest_ring = 8 << 20;

  bool is_complete() const { return found_ == peers_.size(); }
  // See TransportTraits.
  int ranks_per_core() const { return cores_.ranks_per_core(); }
  // Throws Error{unreachable} that names who is still missing.
  [[noreturn]] void throw_unreached(Duration waited) const;

 private:
  struct Peer {
    std::uint64_t key = 0;
    CpuSet cpus;
    std::vector<SocketAddress> candidates;
    std::vector<std::string> ips;  // of the candidates
    bool is_found = false;
    Time hello_due{};
    Duration hello_pause;
    Time answered_at{};  // its newest challenge
    int answers = 0;     // to its challenges
    Time first_answered_at{};
    int calls = 0;               // since then
    SocketAddress answers_from;  // the newest
  };
  // What is asked of the system once for each address: a peer is told of a ring before that is made, and the network
  // may change in between.
  struct Route {
    bool is_on_this_host = false;
    std::size_t most_bytes = PacketSize::base;  // of a packet, on the first link
    std::size_t first_bytes() const { return std::min(most_bytes, PacketSize::base); }
  };
  struct Cookies {
    std::uint64_t given = 0;   // to be echoed by whoever is at that address
    std::uint64_t echoed = 0;  // that came from there
  };

  std::size_t own() const { return static_cast<std::size_t>(info_.rank); }
  std::uint64_t cookie_for(const SocketAddress&) const;
  void greet(std::size_t rank, PacketKind, const SocketAddress& to, std::uint64_t echoed);
  Found found(Time now, Peer&, const PacketHeader&, const SocketAddress& address);
  Route route(const SocketAddress&);
  std::size_t ring_bytes(const Route&) const;
  std::string why_narrow(const Peer&) const;

  const WorldInfo info_;
  const std::size_t socket_bytes_;
  const Send send_;
  const IsOwn is_own_;
  std::map<std::string, Route> routes_;  // by IP
  std::array<std::byte, 32> secret_;     // of the cookies
  std::vector<Peer> peers_;              // by rank
  std::size_t found_ = 1;                // with this rank
  SharedCores cores_;                    // of those of them that are on this host
};

}  // namespace ranvier::transport
