// ranvier's own rank in a benchmark.
#pragma once

#include <cstdint>
#include <memory>

#include "bench/peer.h"
#include "ranvier/communicator.h"

namespace ranvier::bench {

// Whose memory is measured: what any program has, or what Communicator::allocate gives.
enum class Buffers : std::uint8_t { malloc, ranvier };

// `communicator` outlives it.
std::unique_ptr<Peer> communicator_peer(Communicator& communicator, Buffers);

}  // namespace ranvier::bench
