// How a process of a world that something else started meets the others, without torch.
#pragma once

#include <memory>

#include "launch.h"
#include "ranvier/communicator.h"

namespace ranvier::cli {

// Meets in place.store; a world that torchrun started on one host meets in a directory of its own instead. Throws
// Error{config} where hosts have no directory that the place names.
std::unique_ptr<Communicator> meet(const WorldPlace& place, const CommunicatorOptions& options);

}  // namespace ranvier::cli
