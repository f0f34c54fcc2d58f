// Sockets as everything in ranvier uses them: TCP, never blocking, closed by their owner. What waits has a deadline and
// stands elsewhere.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ranvier/types.h"

namespace ranvier {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int number) : number_(number) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;

  int get() const { return number_; }
  explicit operator bool() const { return number_ >= 0; }
  void reset();

 private:
  int number_ = -1;
};

// An IPv4 or IPv6 address with its port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  std::uint16_t port() const;
  bool is_loopback() const;
  std::string text() const;  // "10.0.0.1:4242", "[fd00::1]:4242"
};

// Numbers only, no names: a lookup could block. An IPv6 address may carry its scope ("fe80::1%eth0").
std::optional<SocketAddress> parse_address(const std::string& ip, std::uint16_t port);

// Sizes of a socket's kernel buffers in bytes; 0 leaves one to the kernel. They must be set before a connection stands,
// since the scale of the TCP window is agreed on in its first packet.
struct SocketBuffers {
  int send = 0;
  int receive = 0;
};

// Listens on the first free one of `ports`, on the address `ip` or, where that is empty, on all of this host.
Fd listen_on(const std::string& ip, const PortRange& ports, const SocketBuffers&);
// The next connection that waits; empty when there is none.
Fd accept_next(const Fd& listener);
// Begins to connect; writability tells the end, connect_result() how it went (an errno). Empty with errno set if it
// failed at once.
Fd start_connect(const SocketAddress&, const SocketBuffers&);
int connect_result(const Fd&);

// Whether both ends are on one host.
bool is_local(const Fd&);
// Whether the address is one of this host's.
bool is_own(const SocketAddress&);
// Sends small packets at once, and picks the congestion control where that was measured (see the .cc).
void tune_connection(const Fd&);
// Says something every 20 s where nothing else is said: what stands on the way forgets connections that are silent.
void keep_alive(const Fd&);
// What the kernel holds between the two ends of a connection like this one before the receiver reads: a lower bound.
std::size_t buffered_bytes(const Fd&);

SocketAddress local_address(const Fd&);
SocketAddress remote_address(const Fd&);

// An eventfd: readable, for whoever polls it, from a signal_event() on to the next clear_event().
Fd event_descriptor();
void signal_event(const Fd&);
void clear_event(const Fd&);

// Numeric addresses of the interfaces that are up, IPv4 first; without loopback and link-local IPv6, which mean nothing
// to other hosts.
std::vector<std::string> host_addresses();
// Of the interface with that name, which may be the same on all hosts, its first such address; anything else as it is.
std::string address_of(const std::string& interface);

}  // namespace ranvier
