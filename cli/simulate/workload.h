// What --workload of `simulate` and `plan` may name.
#pragma once

#include <string>
#include <string_view>

#include "ranvier/execution_trace.h"

namespace ranvier::simulation {

// A file: .toml as `ranvier train --record` writes it, .et a Chakra trace, .txt the twelve columns of ASTRA-sim 1.0; or
// a ready-made workload by its name. Throws Error.
Workload load_workload(const std::string& spec_or_file);

// Whether it is one of Chakra's, which also can be read as a graph.
bool is_trace(std::string_view name);
// With the process groups of a file of ASTRA-sim's, if there is one. Throws Error.
ExecutionTrace load_trace(const std::string& file, const std::string& communicator_file);

// For --help: "a file of ranvier train --record (.toml), …".
std::string workload_help();

}  // namespace ranvier::simulation
