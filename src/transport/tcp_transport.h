// The transports tcp and grpc over connections that already stand.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "ranvier/transport.h"
#include "transport/channel.h"

namespace ranvier::transport {

// `name`: of the two, in traits and errors. `channels`: so many a peer and lane; number k of them is at (peer *
// lane_count + lane) * sockets_per_link + k. Those of `rank` itself are empty. `ranks_per_core`: see TransportTraits.
std::unique_ptr<Transport> tcp_transport(std::string_view name, Rank rank, Rank world, std::size_t sockets_per_link,
                                         std::vector<Channel> channels, int ranks_per_core);

}  // namespace ranvier::transport
