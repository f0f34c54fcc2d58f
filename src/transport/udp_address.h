// What a rank publishes of its UDP port: "udp/4 port=… key=… tcp/3 host=… …". The tcp address is that of the meeting
// where two ranks agree on keys; its port is 0 for a rank that meets nobody and encrypts nothing (--insecure). Host and
// addresses are the same for both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/tcp_address.h"

namespace ranvier::transport {

struct UdpAddress {
  std::uint16_t port = 0;
  std::uint64_t key = 0;  // random; who shows it in a plain packet may send to the port
  TcpAddress meeting;

  std::string text() const;
  // Empty if it is not the text of an address of this version.
  static std::optional<UdpAddress> parse(std::string_view text);
  // Where a process of host `own_host` should try, best first.
  std::vector<std::string> candidates(const std::string& own_host) const;
};

}  // namespace ranvier::transport
