// One end of a connection whose handshake is under way, see tcp_hello.h.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <span>

#include "transport/channel.h"
#include "transport/tcp_hello.h"

namespace ranvier::transport {

enum class Arrival { pending, complete, closed };

struct Conversation {
  Channel channel;
  short ready = 0;  // what poll() said last
  std::chrono::steady_clock::time_point until;
  Hello heard;
  std::size_t heard_bytes = 0;

  bool say(const Hello& hello) {
    return channel.send({}, std::as_bytes(std::span(&hello, 1))) == ssize_t{sizeof hello};
  }

  // Reads exactly one message: what follows the last one is data already.
  Arrival listen() {
    const auto rest = std::as_writable_bytes(std::span(&heard, 1)).subspan(heard_bytes);
    const ssize_t got = channel.recv(rest);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Arrival::pending;
    if (got <= 0) return Arrival::closed;
    heard_bytes += static_cast<std::size_t>(got);
    if (heard_bytes < sizeof heard) return Arrival::pending;
    heard_bytes = 0;
    return Arrival::complete;
  }
};

// Who has connected to this rank.
struct Guest : Conversation {
  bool secured = false;     // TLS stands, or none is needed
  bool has_waited = false;  // its hello was heard by an earlier meeting, which it was not meant for
  bool welcomed = false;
};

}  // namespace ranvier::transport
