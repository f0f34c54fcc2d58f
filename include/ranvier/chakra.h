// Chakra execution traces as workloads; see src/plan/chakra/chakra.proto for the format and its source.
#pragma once

#include <filesystem>

#include "ranvier/workload.h"

namespace ranvier {

// The trace of one rank, whose nodes run one after another in an order that its dependencies allow. A collective that a
// later computation depends on is waited for; others go on beside computing, as gradients do. A trace does not say how
// large its groups are: all are taken to be of all ranks. Where a trace has both, operations of the host are left out
// and those of the device count. Throws Error{config} that names the file, and the node or the byte where it goes
// wrong.
Workload read_chakra_trace(const std::filesystem::path&);

}  // namespace ranvier
