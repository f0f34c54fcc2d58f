// Worlds over real sockets of this host, their ranks threads of this process.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ranvier/transport.h"
#include "support/on_threads.h"

namespace ranvier::support {

constexpr auto tcp_patience = std::chrono::seconds(60);  // no test takes this long; a hang ends as a failure

using MakeEndpoint = std::unique_ptr<Endpoint>(const WorldInfo&, const TcpOptions&);

// `make`: tcp_endpoint or grpc_endpoint.
inline std::vector<std::unique_ptr<Endpoint>> endpoints_of(MakeEndpoint& make, Rank world,
                                                           const TcpOptions& options = {}) {
  std::vector<std::unique_ptr<Endpoint>> result;
  for (Rank rank = 0; rank < world; ++rank) result.push_back(make({.rank = rank, .world = world}, options));
  return result;
}
inline std::vector<std::unique_ptr<Endpoint>> tcp_endpoints(Rank world) { return endpoints_of(tcp_endpoint, world); }

inline std::vector<std::string> addresses_of(const std::vector<std::unique_ptr<Endpoint>>& world) {
  std::vector<std::string> result;
  for (const auto& endpoint : world) result.push_back(endpoint->address());
  return result;
}

inline std::vector<std::unique_ptr<Transport>> connect_all(const std::vector<std::unique_ptr<Endpoint>>& endpoints) {
  const auto addresses = addresses_of(endpoints);
  std::vector<std::unique_ptr<Transport>> transports(endpoints.size());
  on_threads(static_cast<Rank>(endpoints.size()), [&](Rank rank) {
    const auto index = static_cast<std::size_t>(rank);
    transports[index] = endpoints[index]->connect(addresses, std::chrono::steady_clock::now() + tcp_patience);
  });
  return transports;
}

inline std::vector<std::unique_ptr<Transport>> tcp_world(Rank world, int sockets = 1,
                                                         const SecurityOptions& security = {}) {
  return connect_all(endpoints_of(tcp_endpoint, world, {.sockets = sockets, .security = security}));
}

}  // namespace ranvier::support
