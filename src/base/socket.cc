#include "base/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "base/forked.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

using std::chrono::microseconds;

constexpr int backlog = 4096;  // all peers may dial at once; the kernel lowers it to net.core.somaxconn

template <class Value>
bool set_option(const Fd& socket, int level, int name, const Value& value) {
  return setsockopt(socket.get(), level, name, &value, sizeof value) == 0;
}

int int_option(const Fd& socket, int level, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(socket.get(), level, name, &value, &size) == 0 ? value : 0;
}

const sockaddr* generic(const SocketAddress& address) { return reinterpret_cast<const sockaddr*>(&address.storage); }
sockaddr* generic(SocketAddress& address) { return reinterpret_cast<sockaddr*>(&address.storage); }

// The soft limit on descriptors is often 1024 and may be raised up to the hard one by anybody.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// A descriptor from `open`, which is tried again with a raised limit when descriptors have run out; also where the
// limit stands at its highest, for another thread may just have raised it.
template <class Open>
Fd open_descriptor(Open&& open) {
  int number = open();
  if (number < 0 && errno == EMFILE) {
    raise_descriptor_limit();
    number = open();
  }
  if (number < 0 && (errno == EMFILE || errno == ENFILE)) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    throw Error(ErrorKind::config,
                fmt::format("no descriptor is left for another socket (limit {}); raise it with 'ulimit -n', or run "
                            "fewer ranks on this host",
                            limit.rlim_cur));
  }
  return Fd(number);
}

int read_int(const char* path) {
  int value = 0;
  std::ifstream(path) >> value;
  return value;
}

// Without CAP_NET_ADMIN the size is cut to rmem_max (212,992 by default), and setting it ends the kernel's own tuning,
// which gets further (tcp_rmem, 6 MiB by default): then the kernel is left to it.
void set_buffer(const Fd& socket, int bytes, int forced, int plain, const char* limit_file) {
  if (bytes == 0 || set_option(socket, SOL_SOCKET, forced, bytes)) return;
  if (read_int(limit_file) >= bytes / 2) set_option(socket, SOL_SOCKET, plain, bytes);
}

void set_buffers(const Fd& socket, const SocketBuffers& buffers) {
  set_buffer(socket, buffers.send, SO_SNDBUFFORCE, SO_SNDBUF, "/proc/sys/net/core/wmem_max");
  set_buffer(socket, buffers.receive, SO_RCVBUFFORCE, SO_RCVBUF, "/proc/sys/net/core/rmem_max");
}

// Of this process alone, see base/forked.h.
Fd own(Fd socket) {
  close_in_forked(socket.get());
  return socket;
}

Fd tcp_socket(int family) {
  return own(open_descriptor([&] { return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }));
}

constexpr const char* every_ipv6 = "::";  // and IPv4 with it
constexpr std::string_view bbr = "bbr";
constexpr std::string_view reno = "reno";
constexpr microseconds longest_in_a_room{2000};  // to and fro, between hosts that are not far from each other

std::string congestion_control(const Fd& socket) {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  socklen_t size = name.size();
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return {};
  return {name.data(), strnlen(name.data(), name.size())};
}

void set_congestion_control(const Fd& socket, std::string_view name) {
  setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size()));
}

// The least that there has been so far; for ever if the kernel does not say. The mean has what a program was late by,
// once something has been said.
microseconds round_trip(const Fd& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool is_said = getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                       size >= offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt;
  return is_said ? microseconds(info.tcpi_min_rtt) : microseconds::max();
}

// Where bbr is the default, a connection that is made under it keeps the kernel's pacing for good, whatever is chosen
// later (sk_pacing_status is set when bbr begins and never taken back). On loopback a timer then let two packets go
// every 0.3 ms after each pause: the first all_reduce of 1 MiB took 1.3 ms instead of 0.3. So all connections begin
// without it; see tune_connection.
void start_unpaced(const Fd& socket) {
  if (congestion_control(socket) == bbr) set_congestion_control(socket, reno);
}

// Listens on the first free one of `ports`; 0 is free always. Empty with errno set where there is none. A port whose
// last connections linger, as they do for a minute, or still live, without a listener, is free: a job starts again, and
// its groups meet, on the ports that a firewall lets through. Two may then bind one at once, but only one listens.
Fd listen_within(const std::string& ip, const PortRange& ports, const SocketBuffers& buffers) {
  for (int port = ports.first; port <= ports.last; ++port) {
    const auto address = parse_address(ip, static_cast<std::uint16_t>(port));
    Fd listener = tcp_socket(address->storage.ss_family);
    if (!listener) return listener;
    if (ip == every_ipv6 && !set_option(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0)) return Fd();
    if (port != 0) set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    set_buffers(listener, buffers);
    start_unpaced(listener);
    if (bind(listener.get(), generic(*address), address->size) == 0 && listen(listener.get(), backlog) == 0)
      return listener;
    const int problem = errno;
    listener.reset();
    errno = problem;
    if (problem != EADDRINUSE && problem != EACCES) break;
  }
  return Fd();
}

[[noreturn]] void throw_unbound(const std::string& where, const PortRange& ports) {
  if (ports.last < ports.first)
    throw Error(ErrorKind::config,
                fmt::format("there is no port from {} to {}; name the smaller one first", ports.first, ports.last));
  if (ports.first != 0)
    throw Error(ErrorKind::config,
                fmt::format("no port from {} to {} is free on {} ({}); name other ones, one for each "
                            "rank of this host",
                            ports.first, ports.last, where, std::strerror(errno)));
  throw Error(ErrorKind::config, fmt::format("cannot listen on {}: {}; this host has: {}", where, std::strerror(errno),
                                             fmt::join(host_addresses(), ", ")));
}

// Both families on one socket where the host has IPv6.
Fd listen_everywhere(const PortRange& ports, const SocketBuffers& buffers) {
  for (const char* const ip : {every_ipv6, "0.0.0.0"})
    if (Fd listener = listen_within(ip, ports, buffers)) return listener;
  throw_unbound("any address of this host", ports);
}

Fd listen_on_one(const std::string& interface, const PortRange& ports, const SocketBuffers& buffers) {
  const std::string ip = address_of(interface);
  if (!parse_address(ip, 0))
    throw Error(ErrorKind::config,
                fmt::format("'{}' is not an IPv4 or IPv6 address, nor an interface that has one; this "
                            "host has: {}",
                            ip, fmt::join(host_addresses(), ", ")));
  if (ip == "0.0.0.0" || ip == "::")
    throw Error(ErrorKind::config,
                fmt::format("'{}' is no address that others could reach; name one of {}, or none for "
                            "all of them",
                            ip, fmt::join(host_addresses(), ", ")));
  if (Fd listener = listen_within(ip, ports, buffers)) return listener;
  throw_unbound(ip, ports);
}

}  // namespace

void Fd::reset() {
  if (number_ < 0) return;
  keep_in_forked(number_);
  close(number_);
  number_ = -1;
}

std::uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

bool SocketAddress::is_loopback() const {
  const std::string shown = text();
  return shown.starts_with("127.") || shown.starts_with("[::1]");
}

std::string SocketAddress::text() const {
  char host[NI_MAXHOST] = "?";
  getnameinfo(generic(*this), size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  std::string_view name = host;
  constexpr std::string_view mapped = "::ffff:";  // IPv4 on a socket that serves both families
  if (name.starts_with(mapped) && name.find('.') != name.npos) name.remove_prefix(mapped.size());
  return name.find(':') == name.npos ? fmt::format("{}:{}", name, port()) : fmt::format("[{}]:{}", name, port());
}

std::optional<SocketAddress> parse_address(const std::string& ip, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (ip.empty() || getaddrinfo(ip.c_str(), fmt::format("{}", port).c_str(), &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  return address;
}

Fd listen_on(const std::string& ip, const PortRange& ports, const SocketBuffers& buffers) {
  return ip.empty() ? listen_everywhere(ports, buffers) : listen_on_one(ip, ports, buffers);
}

Fd accept_next(const Fd& listener) {
  return own(open_descriptor([&] { return accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); }));
}

// Asked of the routing table: connecting a datagram socket sends nothing.
bool is_own(const SocketAddress& address) {
  if (address.is_loopback()) return true;
  const Fd probe(socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return probe && connect(probe.get(), generic(address), address.size) == 0 && is_local(probe);
}

Fd start_connect(const SocketAddress& address, const SocketBuffers& buffers) {
  Fd socket = tcp_socket(address.storage.ss_family);
  if (!socket) return socket;
  set_buffers(socket, buffers);
  start_unpaced(socket);
  if (connect(socket.get(), generic(address), address.size) == 0 || errno == EINPROGRESS) return socket;
  const int problem = errno;
  socket.reset();
  errno = problem;
  return socket;
}

int connect_result(const Fd& socket) { return int_option(socket, SOL_SOCKET, SO_ERROR); }

bool is_local(const Fd& socket) {
  const std::string local = local_address(socket).text(), remote = remote_address(socket).text();
  return local.substr(0, local.rfind(':')) == remote.substr(0, remote.rfind(':'));
}

void tune_connection(const Fd& socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  // On loopback bbr paces by a clock that only loses: 64 MiB took 23 to 36 ms with it and 16 to 21 with reno. In a
  // room bbr takes what a connection had beside others, or in a burst, for the rate of the line: of 8 hosts that sent
  // to three each, 256 KiB took 4 to 55 ms with it and 3.8 with reno (docs/decisions/0049). On a long path, where a
  // lost packet costs reno half of its rate for many round trips, the administrator's choice stands, and any but bbr
  // everywhere. TCP_USER_TIMEOUT is left alone on purpose: it also ends connections whose receiver merely does not read
  // for that long, as a rank does that computes.
  if (is_local(socket))
    set_congestion_control(socket, reno);
  else if (congestion_control(socket) == reno && round_trip(socket) > longest_in_a_room &&
           congestion_control(tcp_socket(AF_INET)) == bbr)
    set_congestion_control(socket, bbr);  // which the listener lacked; a route's own choice (congctl) is there already
}

void keep_alive(const Fd& socket) {
  constexpr int seconds = 20;
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
}

std::size_t buffered_bytes(const Fd& socket) {
  // The kernel counts its own bookkeeping against both and reports twice what it was asked for (socket(7)).
  return static_cast<std::size_t>(int_option(socket, SOL_SOCKET, SO_SNDBUF) / 2) +
         static_cast<std::size_t>(int_option(socket, SOL_SOCKET, SO_RCVBUF) / 2);
}

SocketAddress local_address(const Fd& socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  getsockname(socket.get(), generic(address), &address.size);
  return address;
}

SocketAddress remote_address(const Fd& socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  getpeername(socket.get(), generic(address), &address.size);
  return address;
}

Fd event_descriptor() {
  Fd event = open_descriptor([] { return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); });
  if (!event) throw Error(ErrorKind::config, fmt::format("cannot create an eventfd: {}", std::strerror(errno)));
  return event;
}

void signal_event(const Fd& event) {
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable all the same.
  [[maybe_unused]] const auto written = write(event.get(), &one, sizeof one);
}

void clear_event(const Fd& event) {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = read(event.get(), &count, sizeof count);  // fails when there is nothing to clear
}

namespace {

// Of one interface, or of all: no name.
std::vector<std::string> addresses(std::string_view interface) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  std::vector<std::string> result[2];
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    if (interface.empty() ? (entry->ifa_flags & IFF_LOOPBACK) != 0 : interface != entry->ifa_name) continue;
    char name[INET6_ADDRSTRLEN] = "";
    if (entry->ifa_addr->sa_family == AF_INET) {
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr, name, sizeof name);
      result[0].emplace_back(name);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&address)) continue;
      inet_ntop(AF_INET6, &address, name, sizeof name);
      result[1].emplace_back(name);
    }
  }
  std::ranges::move(result[1], std::back_inserter(result[0]));
  return result[0];
}

}  // namespace

std::vector<std::string> host_addresses() { return addresses({}); }

std::string address_of(const std::string& interface) {
  if (interface.empty() || parse_address(interface, 0)) return interface;
  const auto all = addresses(interface);
  return all.empty() ? interface : all.front();
}

}  // namespace ranvier
