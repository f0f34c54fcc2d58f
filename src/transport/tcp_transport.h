// The tcp transport over sockets that already stand.
#pragma once

#include <memory>
#include <vector>

#include "base/socket.h"
#include "ranvier/transport.h"

namespace ranvier::transport {

// `sockets`: one a peer and lane, non-blocking, at peer * lane_count + lane; those of `rank` itself are empty.
std::unique_ptr<Transport> tcp_transport(Rank rank, Rank world, std::vector<Fd> sockets);

}  // namespace ranvier::transport
