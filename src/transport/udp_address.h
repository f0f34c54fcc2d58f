// What a rank publishes of its UDP port: the line of text of tcp_address.h behind a name of its own, "udp/1 tcp/2
// host=… token=… port=… at=10.0.0.1,fd00::1". Who knows the token may send to the port.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/tcp_address.h"

namespace ranvier::transport {

struct UdpAddress {
  std::string host;  // see host_identity(); empty: reach it at `ips` even from its own host
  Token token{};
  std::uint16_t port = 0;
  std::vector<std::string> ips;

  std::string text() const;
  // Empty if it is not the text of an address of this version.
  static std::optional<UdpAddress> parse(std::string_view text);
  // Where a process of host `own_host` should try.
  std::vector<std::string> candidates(const std::string& own_host) const;
};

}  // namespace ranvier::transport
