// Worlds over real sockets of this host, their ranks threads of this process.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ranvier/transport.h"
#include "support/on_threads.h"
#include "support/refusal.h"

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

// What two ranks are told that do not meet, where rank 1, which dials, hears of a certificate: soon, and on a busy
// machine later.
inline std::array<std::string, 2> told_when_they_meet(
    const std::function<std::unique_ptr<Endpoint>(Rank)>& endpoint_of) {
  std::array<std::string, 2> told;
  for (const auto limit : {std::chrono::seconds(1), std::chrono::seconds(10)}) {
    std::vector<std::unique_ptr<Endpoint>> endpoints;
    for (Rank rank = 0; rank < 2; ++rank) endpoints.push_back(endpoint_of(rank));
    const auto addresses = addresses_of(endpoints);
    on_threads(2, [&](Rank rank) {
      const auto index = static_cast<std::size_t>(rank);
      const auto deadline = std::chrono::steady_clock::now() + limit;
      told[index] = refusal([&] { endpoints[index]->connect(addresses, deadline); }, ErrorKind::unreachable);
    });
    if (told[1].find("certificate") != std::string::npos) break;
  }
  return told;
}

inline std::vector<std::unique_ptr<Transport>> tcp_world(Rank world, int sockets = 1,
                                                         const SecurityOptions& security = {}) {
  return connect_all(endpoints_of(tcp_endpoint, world, {.sockets = sockets, .security = security}));
}

}  // namespace ranvier::support
