// The world that this process was started into, by torchrun, mpirun or srun: rank 0 is the coordinator as well, and
// what it asks for goes over the communicator that is measured.
#pragma once

#include <memory>

#include "bench/communicator_peer.h"
#include "bench/world.h"
#include "ranvier/communicator.h"

namespace ranvier::bench {

// On rank 0; its end tells the others to leave. `communicator` outlives it.
std::unique_ptr<World> communicator_world(Communicator& communicator, Buffers);
// On the other ranks: does what rank 0 asks for, until it leaves.
void serve_communicator(Communicator& communicator, Buffers);

}  // namespace ranvier::bench
