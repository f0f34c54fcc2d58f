// The world that this process was started into, by torchrun, mpirun or srun: rank 0 is the coordinator as well, and
// what it asks for goes over a communicator: the one that is measured, or, where several are, one beside them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bench/communicator_peer.h"
#include "bench/world.h"
#include "ranvier/communicator.h"

namespace ranvier::bench {

// On rank 0. `number`: of `measured` among those that the other ranks serve. Both outlive it.
std::unique_ptr<World> communicator_world(Communicator& control, Communicator& measured, Buffers,
                                          std::size_t number = 0);
// On the other ranks: do what rank 0 asks for, until it tells them to leave.
void serve_communicators(Communicator& control, std::span<Communicator* const> measured, Buffers);

// On rank 0: its end tells the others to leave. `control` outlives it.
class Dismissal {
 public:
  explicit Dismissal(Communicator& control) : control_(control) {}
  ~Dismissal();
  Dismissal(const Dismissal&) = delete;
  Dismissal& operator=(const Dismissal&) = delete;

 private:
  Communicator& control_;
};

}  // namespace ranvier::bench
