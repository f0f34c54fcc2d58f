// What --workload of `simulate` and `plan` may name.
#pragma once

#include <string>

#include "ranvier/workload.h"

namespace ranvier::simulation {

// A file: .toml as `ranvier train --record` writes it, .et a Chakra trace, .txt the twelve columns of ASTRA-sim 1.0; or
// a ready-made workload by its name. Throws Error.
Workload load_workload(const std::string& spec_or_file);

// For --help: "a file of ranvier train --record (.toml), …".
std::string workload_help();

}  // namespace ranvier::simulation
