// Parameter servers spread over the workers: every rank serves a range of the parameters from a thread of its own, and
// is a client of all ranges.
//
//   ParameterServer server(comm, *policy.server(), parameters, 0);
//   for (;;) {
//     const auto start = server.begin(most_steps);
//     if (!start.permitted) break;
//     …                                                  // the gradient of batch number start.ticket
//     server.exchange(gradient, learning_rate, parameters);
//   }
//   server.leave();
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ranvier/communicator.h"
#include "ranvier/server.h"

namespace ranvier {

class ParameterServer {
 public:
  // All ranks call, with the same rule, parameters and number of steps that all workers together have done before.
  // `comm` outlives this; its messages with this class's tags are this class's.
  ParameterServer(Communicator& comm, const ServerRule& rule, std::span<const float> parameters, std::uint64_t before);
  ~ParameterServer();
  ParameterServer(const ParameterServer&) = delete;
  ParameterServer& operator=(const ParameterServer&) = delete;

  struct Start {
    bool permitted = false;
    std::uint64_t steps = 0;   // of all workers together, so far
    std::uint64_t ticket = 0;  // if permitted: a number that no other step has
  };
  // Waits until this worker may take a step, or until all together have done `stop_at`: then none is permitted any
  // more, so that they can look at the result together. Those under way still end: a few more than `stop_at` may be
  // done.
  Start begin(std::uint64_t stop_at);
  // Pushes a gradient, and leaves in `parameters` what the servers hold then.
  void exchange(std::span<const float> gradient, double rate, std::span<float> parameters);
  // Nothing is pushed; between a begin() that was not permitted and the next one all ranks get the same.
  void pull(std::span<float> parameters);
  // This worker takes no more steps; every rank calls, once all have stopped.
  void leave();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ranvier
