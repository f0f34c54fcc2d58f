// A whole job inside one process: its ranks are threads. Most tests of what ranks do together start here.
//
//   run_ranks(4, [](Communicator& comm) { … });
//   run_ranks(4, [](Communicator& comm) { … }, {.way = "tcp"});
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/communicator.h"
#include "ranvier/simulated.h"

namespace ranvier::support {

// The ways to form a world. "loopback" and "simulated" stand over a transport that is already there; the others meet
// through a store and have a control plane. "tls" is tcp with every connection encrypted, "sealed" is udp with every
// datagram encrypted, "paired" is transport auto with every second rank on another host, as far as shared memory goes;
// other pairs ("shm+udp") can be named likewise and are no part of these lists.
// With RANVIER_TEST_LONG (make test-fabrics) there are grpc and those in modules (mpi, ucx) that this build has, which
// under sanitizers has none: these understand neither their threads nor their memory.
std::vector<std::string_view> connected_ways();
std::vector<std::string_view> all_ways();

struct ClusterOptions {
  std::string_view way = "loopback";
  CommunicatorOptions communicator = patient();
  SimulationOptions simulation = {};
  std::chrono::seconds watchdog = std::chrono::seconds(240);

  // Deadlines short enough for a test that hangs, long enough for one that shares two cores under a sanitizer, where a
  // thread may be silent for long, too.
  static CommunicatorOptions patient();
};

using RankBody = std::function<void(Communicator&)>;

// Calls body(communicator of rank r) on a thread for every rank, and returns when all have ended. The first exception
// of a body aborts the others and is thrown here as std::runtime_error that names the rank. Ranks that have not ended
// when the watchdog barks are aborted, and the program ends if that does not help: a test never hangs.
void run_ranks(Rank world, const RankBody& body, const ClusterOptions& options = {});

}  // namespace ranvier::support
