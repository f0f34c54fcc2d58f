#include "transport/udp_greeting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "base/host.h"
#include "base/secret.h"
#include "ranvier/error.h"

namespace ranvier::transport {
namespace {

using namespace std::chrono_literals;

// Of all lanes' rings, both directions.
constexpr std::size_t ring_budget = 704 << 20;  // the largest rings for up to 6 ranks
constexpr std::size_t smallest_ring = 256 << 10;
// Between processes of one host nothing is on its way for long, and what is under way should stay in the caches.
constexpr std::size_t largest_local_ring = 1 << 20;
constexpr std::size_t largest_local_window = 512 << 10;

constexpr auto first_hello_pause = 10ms;  // doubles
constexpr auto longest_hello_pause = 500ms;
constexpr std::size_t most_listed = 8;
// Of which it is kept how they are reached: an old challenge may be sent again from anywhere.
constexpr std::size_t most_known_ips = 4096;
// After so many answers and so long, on a way that loses little, it is no longer chance that none of them has arrived.
constexpr int most_answers = 12;
constexpr auto longest_doubt = 3s;

}  // namespace

UdpGreeting::UdpGreeting(const WorldInfo& info, const UdpSocket& socket, const std::vector<UdpAddress>& addresses,
                         Send send, IsOwn is_own)
    : info_(info),
      socket_bytes_(socket.receive_bytes()),
      send_(std::move(send)),
      is_own_(std::move(is_own)),
      peers_(addresses.size()) {
  fill_with_random(secret_);
  const std::string host = host_identity();
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    Peer& peer = peers_[rank];
    peer.cpus = addresses[rank].meeting.cpus;
    if (rank == own()) {
      cores_.add_rank(peer.cpus);
      continue;
    }
    peer.key = addresses[rank].key;
    peer.hello_pause = first_hello_pause;
    for (const std::string& ip : addresses[rank].candidates(host)) {
      const auto address = socket.reachable(ip, addresses[rank].port);
      if (!address) continue;
      peer.candidates.push_back(*address);
      peer.ips.push_back(ip);
    }
    // This rank would call it. No packet could change that.
    if (static_cast<Rank>(rank) < info.rank && peer.candidates.empty())
      throw Error(
          ErrorKind::unreachable,
          fmt::format("rank {} has no address by which rank {} could reach it by udp; give both addresses of one "
                      "kind (--interface or RANVIER_INTERFACE), and not one of them loopback",
                      rank, info.rank),
          static_cast<Rank>(rank));
  }
}

UdpGreeting::Time UdpGreeting::say_hello(Time now) {
  Time next = now + longest_hello_pause;
  for (std::size_t rank = 0; rank < own(); ++rank) {
    Peer& peer = peers_[rank];
    if (peer.is_found) continue;
    const bool loses_little = 2 * peer.answers >= peer.calls;
    if (peer.answers >= most_answers && loses_little && now - peer.first_answered_at >= longest_doubt)
      throw Error(ErrorKind::config,
                  fmt::format("rank {} answers rank {} by udp from {}, {}", rank, own(), ip_of(peer.answers_from),
                              why_narrow(peer)),
                  static_cast<Rank>(rank));
    if (peer.hello_due <= now) {
      for (const SocketAddress& candidate : peer.candidates) greet(rank, PacketKind::hello, candidate, 0);
      ++peer.calls;
      peer.hello_due = now + peer.hello_pause;
      peer.hello_pause = std::min<Duration>(2 * peer.hello_pause, longest_hello_pause);
    }
    next = std::min(next, peer.hello_due);
  }
  return next;
}

std::optional<UdpGreeting::Found> UdpGreeting::take(Time now, const Packet& packet, const SocketAddress& from) {
  const PacketHeader header = packet.header;
  const bool calls = header.from > info_.rank;
  Cookies theirs;
  if (packet.payload.size() < sizeof theirs || calls != (header.kind == PacketKind::hello)) return std::nullopt;
  std::memcpy(&theirs, packet.payload.data(), sizeof theirs);
  const auto rank = static_cast<std::size_t>(header.from);
  Peer& peer = peers_[rank];
  const bool is_there = theirs.echoed == cookie_for(from);
  if (calls) greet(rank, is_there ? PacketKind::welcome : PacketKind::challenge, from, theirs.given);
  if (peer.is_found) return std::nullopt;
  if (header.kind == PacketKind::challenge) {
    greet(rank, PacketKind::hello, from, is_there ? theirs.given : 0);
    if (!is_there) return std::nullopt;
    peer.answered_at = now;
    if (++peer.answers == 1) {
      peer.first_answered_at = now;
      peer.calls = 1;
    }
    peer.answers_from = from;
    return std::nullopt;
  }
  if (!is_there) return std::nullopt;
  return found(now, peer, header, from);
}

std::uint64_t UdpGreeting::cookie_for(const SocketAddress& address) const {
  const std::string text = address.text();
  std::array<unsigned char, 32> digest{};
  unsigned length = 0;
  if (HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data(), &length) == nullptr)
    throw Error(ErrorKind::internal, "OpenSSL cannot make a cookie; please report this");
  std::uint64_t cookie = 0;
  std::memcpy(&cookie, digest.data(), sizeof cookie);
  return cookie;
}

void UdpGreeting::greet(std::size_t rank, PacketKind kind, const SocketAddress& to, std::uint64_t echoed) {
  const Cookies cookies{.given = cookie_for(to), .echoed = echoed};
  PacketHeader header;
  header.key = peers_[rank].key;
  header.from = info_.rank;
  header.epoch = info_.epoch;
  header.kind = kind;
  header.offset = socket_bytes_;
  std::size_t bytes = 0;
  if (kind != PacketKind::challenge) {  // whoever that goes to need not be there
    const Route route = this->route(to);
    header.number = ring_bytes(route);
    if (echoed != 0) bytes = route.first_bytes();
  }
  send_(rank, to, header, std::as_bytes(std::span(&cookies, 1)), bytes);
}

UdpGreeting::Found UdpGreeting::found(Time now, Peer& peer, const PacketHeader& header, const SocketAddress& address) {
  UdpConnectionOptions options{.self = info_.rank, .peer_key = peer.key, .epoch = info_.epoch};
  const Route route = this->route(address);
  options.ring_bytes = ring_bytes(route);
  options.peer_ring_bytes = std::min<std::uint64_t>(header.number, largest_ring);
  options.most_packet_bytes = route.most_bytes;
  if (route.is_on_this_host) {
    options.local_window =
        std::clamp<std::uint64_t>(header.offset / peers_.size(), 2 * PacketSize::base, largest_local_window);
    options.most_packet_bytes =
        std::min(std::max(options.local_window / 4, PacketSize::base), options.most_packet_bytes);
    cores_.add_rank(peer.cpus);
  }
  peer.is_found = true;
  ++found_;
  return {address, options,
          header.kind == PacketKind::welcome && peer.answers == 1 ? std::optional<Duration>(now - peer.answered_at)
                                                                  : std::nullopt};
}

UdpGreeting::Route UdpGreeting::route(const SocketAddress& address) {
  const std::string ip = ip_of(address);
  const auto known = routes_.find(ip);
  if (known != routes_.end()) return known->second;
  const Route route{.is_on_this_host = is_own_(address), .most_bytes = first_link_bytes(ip)};
  if (routes_.size() < most_known_ips) routes_.emplace(ip, route);
  return route;
}

std::size_t UdpGreeting::ring_bytes(const Route& route) const {
  const std::size_t rings = std::size_t{2} * lane_count * std::max<std::size_t>(peers_.size() - 1, 1);
  const std::size_t bytes = std::clamp(std::bit_floor(ring_budget / rings), smallest_ring, largest_ring);
  return route.is_on_this_host ? std::min(bytes, largest_local_ring) : bytes;
}

std::string UdpGreeting::why_narrow(const Peer& peer) const {
  const std::string ip = ip_of(peer.answers_from);
  return fmt::format("but packets of {} bytes do not get there and back: {}", PacketSize::base + ip_headers(ip),
                     mtu_complaint(ip));
}

void UdpGreeting::throw_unreached(Duration waited) const {
  std::vector<std::string> missing;
  Rank culprit = -1;
  std::size_t count = 0;
  for (std::size_t rank = 0; rank < peers_.size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (rank == own() || peer.is_found) continue;
    culprit = count == 0 ? static_cast<Rank>(rank) : -1;
    if (++count > most_listed) continue;
    missing.push_back(
        rank > own() ? fmt::format("rank {} (it did not call)", rank)
        : peer.answers > 0
            ? fmt::format("rank {} ({}: it answers, {})", rank, ip_of(peer.answers_from), why_narrow(peer))
        : peer.candidates.empty() ? fmt::format("rank {} (it has no address to be reached at)", rank)
                                  : fmt::format("rank {} ({}: no answer)", rank, fmt::join(peer.ips, ", ")));
  }
  if (count > most_listed) missing.push_back(fmt::format("{} more", count - most_listed));
  throw Error(ErrorKind::unreachable,
              fmt::format("rank {} has no udp connection to {} after {:.1f} s; check that they run and that no "
                          "firewall keeps UDP from them",
                          info_.rank, fmt::join(missing, ", "), std::chrono::duration<double>(waited).count()),
              culprit);
}

}  // namespace ranvier::transport
