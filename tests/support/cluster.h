// A whole job inside one process: its ranks are threads. Most tests of what ranks do together start here.
//
//   run_ranks(4, [](Communicator& comm) { … });
//   run_ranks(4, [](Communicator& comm) { … }, {.way = "tcp"});
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "ranvier/communicator.h"
#include "ranvier/simulated.h"

namespace ranvier::support {

#ifdef RANVIER_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

// The ways to form a world. "loopback" and "simulated" stand over a transport that is already there; "shm" and "tcp"
// meet through a store and have a control plane.
inline constexpr std::array<std::string_view, 4> all_ways{"loopback", "simulated", "shm", "tcp"};
inline constexpr std::array<std::string_view, 2> connected_ways{"shm", "tcp"};

struct ClusterOptions {
  std::string_view way = "loopback";
  CommunicatorOptions communicator = patient();
  SimulationOptions simulation = {};
  std::chrono::seconds watchdog = std::chrono::seconds(100);

  // Deadlines short enough for a test that hangs, long enough for one that shares two cores under a sanitizer.
  static CommunicatorOptions patient();
};

using RankBody = std::function<void(Communicator&)>;

// Calls body(communicator of rank r) on a thread for every rank, and returns when all have ended. The first exception
// of a body aborts the others and is thrown here as std::runtime_error that names the rank. Ranks that have not ended
// when the watchdog barks are aborted, and the program ends if that does not help: a test never hangs.
void run_ranks(Rank world, const RankBody& body, const ClusterOptions& options = {});

}  // namespace ranvier::support
