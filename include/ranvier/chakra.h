// Chakra execution traces as workloads; see src/plan/chakra/chakra.proto for the format and its source.
#pragma once

#include <filesystem>

#include "ranvier/execution_trace.h"
#include "ranvier/workload.h"

namespace ranvier {

// The trace of one rank with its own graph: computations, collectives, sends and receives (which take as long as the
// send at the other end), each behind what it waits for; whatever else the trace has takes no time. Operations stand in
// the order in which they started, as far as dependencies allow; those that started at once, or of which it is not
// recorded, in that of their numbers. Where a trace has both, operations of the host take no time and those of the
// device count. Process groups are those that PyTorch recorded, if it did. Throws Error{config} that names the file,
// and the node or the byte where it goes wrong.
ExecutionTrace read_chakra_graph(const std::filesystem::path&);

// The same as layers, one after another in that order. A collective that a later computation depends on is waited for;
// others go on beside computing, as gradients do. All groups are taken to be of all ranks, and receives are left out.
Workload read_chakra_trace(const std::filesystem::path&);

}  // namespace ranvier
