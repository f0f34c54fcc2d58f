// All ranks of one library, as a benchmark sees them: given a job, they run it and say how long it took.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/job.h"
#include "bench/peer.h"
#include "ranvier/communicator.h"

namespace ranvier::bench {

struct Outcome {
  std::string refusal;                       // why these ranks cannot run the job; the rest then means nothing
  double seconds = 0;                        // for one operation, on the slowest rank
  double cpu_seconds = 0;                    // for one operation, of all ranks; 0 where they do not tell
  std::uint64_t wrong = 0;                   // elements, over all ranks
  LossCounts losses = {};                    // of all ranks
  PacketCounts packets = {};                 // likewise; what the kernel counts, once for each network
  double error = 0;                          // of the output of the rank that is off most, relative; see Fill::centred
  bool fell_back = false;                    // another algorithm ran than was asked for
  std::vector<std::uint64_t> networks = {};  // in which the ranks are, each once; see counting_network()

  // Of one rank; `iterations`: of its job.
  void add(const Reply& reply, std::uint64_t iterations);
};

class World {
 public:
  virtual ~World() = default;
  virtual std::string name() const = 0;         // "ranvier", "mpi", …
  virtual std::string description() const = 0;  // of what was started: library, version, transport
  virtual Rank size() const = 0;
  // Throws Error naming this world when a rank fails, leaves, or does not answer in time.
  virtual Outcome run(const Job&) = 0;
};

}  // namespace ranvier::bench
