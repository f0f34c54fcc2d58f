// The study behind `ranvier design`, as one command: the same workloads on networks of two, three and four dimensions.
#pragma once

#include "design/options.h"
#include "output.h"

namespace ranvier::design {

// Prints docs/network_design.md's tables; returns the exit code.
int study(const Options&, const cli::JsonFile&);

}  // namespace ranvier::design
