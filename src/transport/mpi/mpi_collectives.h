// The MPI library's own collectives, non-blocking so that deadlines and aborts are heard meanwhile.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "ranvier/transport.h"

namespace ranvier::transport {

// Of the communicator whose rank i is process `processes[i]` of `all`. All of them call it at about the same time: MPI
// waits for those that do not, without a deadline. Null where two ranks share a process.
std::unique_ptr<VendorCollectives> mpi_collectives(MPI_Comm all, const std::vector<int>& processes, int tag);

}  // namespace ranvier::transport
