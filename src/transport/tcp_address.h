// What a rank publishes of its listener, as one line of text: "tcp/3 host=… token=… port=… sockets=1 cpus=0-3
// at=10.0.0.1,fd00::1".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cpu_set.h"
#include "base/socket.h"

namespace ranvier::transport {

// 128 random bits. Rank 0's are the job's: whoever cannot show them is a stranger.
using Token = std::array<std::byte, 16>;
Token random_token();

struct TcpAddress {
  std::string host;  // see host_identity(); empty: reach it at `ips` even from its own host
  Token token{};
  std::uint16_t port = 0;
  int sockets = 1;   // that this rank wants with each other one, a lane
  CpuSet cpus = {};  // on which it may run
  std::vector<std::string> ips;

  std::string text() const;
  // Empty if it is not the text of an address of this version.
  static std::optional<TcpAddress> parse(std::string_view text);
  // Where a process of host `own_host` should try, best first.
  std::vector<SocketAddress> candidates(const std::string& own_host) const;
};

}  // namespace ranvier::transport
