// Every shape of a network under one budget.
#pragma once

#include "design/options.h"
#include "output.h"

namespace ranvier::design {

// Designs each shape, prints the best and writes all; returns the exit code.
int enumerate(const Options&, const cli::JsonFile&);

}  // namespace ranvier::design
