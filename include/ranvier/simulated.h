// A world on a virtual clock: seeded delays, losses and crashes, every run of one seed the same. A product as well as a
// test bench: what runs here is the same executor and the same schedules as on a real network.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "ranvier/transport.h"

namespace ranvier {

struct SimulationOptions {
  std::uint64_t seed = 0;
  std::chrono::nanoseconds least_delay = std::chrono::microseconds(1);
  std::chrono::nanoseconds most_delay = std::chrono::microseconds(100);  // each message: uniform between the two
  double loss = 0;  // share of messages lost on their way; each costs one retransmit_after, then goes again
  std::chrono::nanoseconds retransmit_after = std::chrono::milliseconds(1);
  std::size_t slice_bytes = 1 << 12;  // largest piece of a body accepted at once
  std::size_t buffered_slices = 2;    // what a link holds unread before try_send accepts nothing
  double cut = 0;               // share of sends accepted, and of reads served, only in part, as a byte stream does
  bool deferred_reads = false;  // read the sender's memory only when a message arrives, as RDMA does: sent()
                                // stays false until then, and a sender that overwrites too early is caught
  struct Crash {
    Rank rank = 0;
    std::chrono::nanoseconds at{};
    std::chrono::nanoseconds noticed_after = std::chrono::seconds(3);
  };
  std::optional<Crash> crash =
      {};  // from then on the rank is silent; the others' calls throw peer_lost once it is noticed
};

// Runs rank bodies on threads of which exactly one runs at a time: a rank runs until it waits, then the next that can
// run does, in an order drawn from the seed; when all wait, the clock jumps to the next arrival or to the end of the
// shortest wait. A deadlock is found, not waited for: once nothing is under way and every rank has waited a thousand
// times in vain, every wait() throws Error{internal} saying who waits. Calls take no virtual time.
class SimulatedWorld {
 public:
  SimulatedWorld(Rank world, const SimulationOptions& options);
  ~SimulatedWorld();

  // Calls body(transport of rank r) for every rank, and returns when all have ended. The first exception of a body is
  // rethrown after all have ended; those of a crashed rank are dropped. A body that ends leaves in good order: what it
  // has sent still arrives. Once per world.
  void run(const std::function<void(std::unique_ptr<Transport>)>& body);

  // For bodies, and for everyone once run() has returned.
  std::chrono::nanoseconds now() const;  // virtual time since the start
  std::uint64_t messages() const;        // delivered so far, retransmissions not counted
  std::uint64_t trace() const;           // a hash of all that happened, in its order: equal for two runs of one seed

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ranvier
