// How a process of a world that something else started meets the others, without torch.
#pragma once

#include <memory>
#include <string>

#include "launch.h"
#include "ranvier/communicator.h"

namespace ranvier::cli {

// Meets in place.store; a world that torchrun started on one host meets in a directory of its own instead. Throws
// Error{config} where hosts have no directory that the place names. `subject`: of a world that meets several times, a
// name for each.
std::unique_ptr<Communicator> meet(const WorldPlace& place, const CommunicatorOptions& options,
                                   const std::string& subject = {});

}  // namespace ranvier::cli
