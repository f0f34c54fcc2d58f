// The udp transport: a socket, a connection to each other rank, and who moves them.
//
// What a kernel does for tcp while nobody looks, acknowledging and sending again, somebody has to do here. Whoever
// polls the transport does it on the way; while nobody has polled for a moment, as during a training step's
// computation, a keeper does (udp_keeper.h). Both hold one lock, so a call of an idle transport costs an uncontended
// one more.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ranvier/transport.h"
#include "transport/udp_address.h"
#include "transport/udp_seal.h"
#include "transport/udp_socket.h"

namespace ranvier::transport {

// Meets the others at `addresses`, by rank, and returns when each has answered. With whom there are secrets, all
// datagrams are sealed by them. Throws Error{unreachable}. `unanswered_limit`: see UdpOptions.
std::unique_ptr<Transport> udp_transport(const WorldInfo&, std::unique_ptr<UdpSocket>,
                                         const std::vector<UdpAddress>& addresses,
                                         const std::vector<std::optional<UdpSecrets>>& secrets,
                                         std::chrono::milliseconds unanswered_limit,
                                         std::chrono::steady_clock::time_point deadline);

}  // namespace ranvier::transport
