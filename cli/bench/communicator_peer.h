// ranvier's own rank in a benchmark.
#pragma once

#include <memory>

#include "bench/peer.h"
#include "ranvier/communicator.h"

namespace ranvier::bench {

// `communicator` outlives it.
std::unique_ptr<Peer> communicator_peer(Communicator& communicator);

}  // namespace ranvier::bench
