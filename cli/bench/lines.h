// Lines of text between the coordinator of a benchmark and its ranks, over a Unix-domain socket. Both sides sleep in
// the kernel while they wait: a rank that is not being measured costs the others nothing.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/socket.h"

namespace ranvier::bench {

class Lines {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  // Longer ones are none that a benchmark writes.
  static constexpr std::size_t longest = 4096;

  explicit Lines(Fd socket) : socket_(std::move(socket)) {}

  // Throws Error{peer_lost} when the other side is gone.
  void write(std::string_view line);
  // The next line without its end; none when the other side has closed. Throws Error{timeout} after `deadline`.
  std::optional<std::string> read(std::optional<Deadline> deadline = {});
  // Nothing more is written: the other side reads none from here on, and may still write.
  void finish();

 private:
  Fd socket_;
  std::string buffer_;  // what has arrived behind the last line
};

// The name of a socket is kept in the environment under this variable. Such names are abstract (unix(7)): they are no
// files, and vanish with their process.
inline constexpr const char* socket_variable = "RANVIER_BENCH_SOCKET";

struct Listener {
  Fd socket;
  std::string name;
};
Listener listen_for_lines();
// The next connection by a process of this user; none after `limit`. Those of other users are closed.
std::optional<Lines> accept_lines(const Listener&, std::chrono::milliseconds limit);
// Throws Error{unreachable}.
Lines connect_lines(const std::string& name);

}  // namespace ranvier::bench
