// The MPI library's own collectives, non-blocking so that deadlines and aborts are heard meanwhile.
#pragma once

#include <memory>
#include <vector>

#include "ranvier/transport.h"

namespace ranvier::transport {

// Of the communicator whose rank i is process `processes[i]` of MPI_COMM_WORLD. All of them call it at about
// the same time: MPI waits for those that do not, without a deadline. Null where two ranks share a process.
std::unique_ptr<VendorCollectives> mpi_collectives(const std::vector<int>& processes, int tag,
                                                   std::chrono::steady_clock::time_point deadline);

}  // namespace ranvier::transport
