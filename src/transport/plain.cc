#include "transport/plain.h"

#include <fmt/format.h>

#include "base/host.h"
#include "base/socket.h"
#include "ranvier/error.h"

namespace ranvier::transport {

void refuse_other_host(std::string_view transport, Rank rank, const std::string& host,
                       const std::vector<std::string>& ips) {
  if (!host.empty() && host == host_identity()) return;
  for (const std::string& ip : ips) {
    const auto address = parse_address(ip, 9);  // nothing is sent there
    if (!address || !is_own(*address))
      throw Error(ErrorKind::config,
                  fmt::format("rank {} is on another host ({}), and {} would send in the clear; say --insecure "
                              "(RANVIER_INSECURE=1) if the network may be trusted, or use tcp",
                              rank, ip, transport),
                  rank);
  }
}

}  // namespace ranvier::transport
