#include "bench/lines.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "ranvier/error.h"

namespace ranvier::bench {
namespace {

Fd unix_socket() {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket)
    throw Error(ErrorKind::config, fmt::format("cannot make a Unix-domain socket: {}", std::strerror(errno)));
  return socket;
}

// An abstract name begins with a zero byte, which `name` leaves out.
std::pair<sockaddr_un, socklen_t> abstract_address(std::string_view name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::copy_n(name.data(), length, address.sun_path + 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)};
}

// The one cast that the socket interface asks for.
template <class Address>
auto* as_sockaddr(Address& address) {
  using Generic = std::conditional_t<std::is_const_v<Address>, const sockaddr, sockaddr>;
  return reinterpret_cast<Generic*>(&address);
}

bool readable(int socket, std::chrono::milliseconds limit) {
  pollfd waiting{socket, POLLIN, 0};
  return poll(&waiting, 1, static_cast<int>(std::max(limit, std::chrono::milliseconds(0)).count())) > 0;
}

}  // namespace

void Lines::write(std::string_view line) {
  const std::string text = std::string(line) + '\n';
  std::string_view left = text;
  while (!left.empty()) {
    const auto sent = send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0)
      throw Error(ErrorKind::peer_lost,
                  fmt::format("the other process of the benchmark is gone: {}", std::strerror(errno)));
    left.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::optional<std::string> Lines::read(std::optional<Deadline> deadline) {
  for (;;) {
    if (const auto end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (buffer_.size() > longest)
      throw Error(ErrorKind::mismatch,
                  "the other process of the benchmark sends no lines; do both come from one build?");
    if (deadline) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - std::chrono::steady_clock::now());
      if (!readable(socket_.get(), left)) throw Error(ErrorKind::timeout, "no answer in time");
    }
    std::array<char, 1024> part;
    const auto got = recv(socket_.get(), part.data(), part.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    buffer_.append(part.data(), static_cast<std::size_t>(got));
  }
}

void Lines::finish() { shutdown(socket_.get(), SHUT_WR); }

Listener listen_for_lines() {
  Listener listener{unix_socket(), {}};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t size = sizeof(sa_family_t);  // no name: the kernel picks a free one ("autobind")
  if (bind(listener.socket.get(), as_sockaddr(address), size) != 0 || listen(listener.socket.get(), 1024) != 0)
    throw Error(ErrorKind::config, fmt::format("cannot listen on a Unix-domain socket: {}", std::strerror(errno)));
  size = sizeof address;
  getsockname(listener.socket.get(), as_sockaddr(address), &size);
  listener.name.assign(address.sun_path + 1, size - offsetof(sockaddr_un, sun_path) - 1);
  return listener;
}

std::optional<Lines> accept_lines(const Listener& listener, std::chrono::milliseconds limit) {
  if (!readable(listener.socket.get(), limit)) return std::nullopt;
  Fd socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return std::nullopt;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())
    return std::nullopt;
  return Lines(std::move(socket));
}

Lines connect_lines(const std::string& name) {
  Fd socket = unix_socket();
  const auto [address, size] = abstract_address(name);
  if (connect(socket.get(), as_sockaddr(address), size) != 0)
    throw Error(ErrorKind::unreachable,
                fmt::format("nobody listens on {}='{}' ({}); the variable is set by ranvier bench "
                            "for the ranks that it starts: unset it",
                            socket_variable, name, std::strerror(errno)));
  return Lines(std::move(socket));
}

}  // namespace ranvier::bench
