// Two transports as one: shared memory between ranks of one host, another transport between hosts, chosen pair by pair.
// A schedule does not notice; what it gains is that its local half costs no network.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ranvier/transport.h"

namespace ranvier::transport {

// `between` connects all ranks, and has carried nothing yet: through it the ranks of a host find each other's memory.
// `hosts`: by rank, equal for those that share one, see shm_hosts. All ranks call it. Throws Error{timeout} naming the
// rank whose memory was not reached before `deadline`.
std::unique_ptr<Transport> paired_transport(std::unique_ptr<Transport> between, const std::vector<std::string>& hosts,
                                            const WorldInfo& info, std::chrono::steady_clock::time_point deadline);

// Over two that stand: `local[rank]` is the rank that `inside` has for it, -1 where it does not reach that rank.
std::unique_ptr<Transport> paired_transport(std::unique_ptr<Transport> inside, std::vector<Rank> local,
                                            std::unique_ptr<Transport> between);

}  // namespace ranvier::transport
