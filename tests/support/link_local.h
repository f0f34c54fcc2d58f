// The IPv6 address that an interface has without being given one. host_addresses() leaves it out, since it means
// nothing to other hosts; packets come from it all the same.
#pragma once

#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <optional>

#include "base/socket.h"

namespace ranvier::support {

// The first that this host has, with its scope; empty where IPv6 is off.
inline std::optional<SocketAddress> link_local_address(std::uint16_t port = 1) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return std::nullopt;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET6) continue;
    sockaddr_in6 six{};
    std::memcpy(&six, each->ifa_addr, sizeof six);
    if (!IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) continue;
    six.sin6_port = htons(port);
    SocketAddress address{.storage = {}, .size = sizeof six};
    std::memcpy(&address.storage, &six, sizeof six);
    return address;
  }
  return std::nullopt;
}

}  // namespace ranvier::support
