// Workers at their own pace that average with one peer at a time: no step of everybody's, no servers. Each rank with an
// odd number, and of an odd number of ranks the last one, asks a random one of the others once a step; both then hold
// the mean of what the two held. Lian, Zhang, Zhang and Liu, "Asynchronous Decentralized Parallel Stochastic Gradient
// Descent" (AD-PSGD), ICML 2018 (arXiv:1710.06952). That those who ask never ask one another is what keeps them from
// waiting in a circle.
//
//   PeerAverage peers(comm, parameters, 0, seed);
//   for (;;) {
//     const auto start = peers.begin(stop_at, 32);       // the parameters of who asks leave for its peer
//     if (start.count == 0) break;
//     peers.read(parameters);                            // … while the gradient at these is computed
//     …
//     peers.update(parameters, start.count, [&] { …; }); // the step, from the average
//   }
//   peers.leave();
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "ranvier/communicator.h"
#include "ranvier/server.h"

namespace ranvier {

class PeerAverage {
 public:
  // All ranks call, with as many parameters, the number of samples that all workers together have used before, the same
  // seed, from which each draws its peers, and the same codec of every value (--compress), by which two tell each other
  // how they have changed since they last met: 8 bytes a parameter and peer. `comm` outlives this; its messages with
  // this class's tags are this class's. Throws Error{usage} for a codec by which peers would not come together, and
  // Error{mismatch} naming a rank that has another one.
  PeerAverage(Communicator& comm, std::span<const float> parameters, std::uint64_t before, std::uint64_t seed,
              const std::string& compress = "none");
  ~PeerAverage();
  PeerAverage(const PeerAverage&) = delete;
  PeerAverage& operator=(const PeerAverage&) = delete;

  // At most so many samples for this worker, until all have been given out up to `stop_at`: then none gets any, and no
  // averages are under way once all ranks know.
  SampleStart begin(std::uint64_t stop_at, std::uint64_t most);
  // In place of it where samples are not given out here: the parameters of who asks leave for its peer.
  void start();
  // What this rank holds now.
  void read(std::span<float> parameters);
  // Leaves in `parameters` what this rank holds by now, lets `step` change them, and holds that, while no peer
  // averages. `samples` have had their effect then.
  void update(std::span<float> parameters, std::uint64_t samples, const std::function<void()>& step);
  // This worker takes no more steps; every rank calls, once all have stopped.
  void leave();
  // That this rank has had a part in.
  std::uint64_t averages() const;
  // Of the codec: messages of this rank that went plain, since something was not finite, and bytes kept.
  std::uint64_t plain_messages() const;
  std::size_t state_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ranvier
