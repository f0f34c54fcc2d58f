// What --workload of `simulate` and `plan` may name.
#pragma once

#include <string>
#include <string_view>

#include "ranvier/execution_trace.h"

namespace ranvier::simulation {

// A file: .toml as `ranvier train --record` writes it, .et a Chakra trace, .txt the twelve columns of ASTRA-sim 1.0; or
// a ready-made workload by its name. `communicator_file` of LIBRA's has the groups of a text, on that network, which is
// then to be a shape. Throws Error.
Workload load_workload(const std::string& spec_or_file, const std::string& communicator_file = {},
                       const std::string& network = {});
// Whether a communicator's file of LIBRA's may have its groups.
bool names_an_astra_text(std::string_view name);

// With the process groups of a file of ASTRA-sim's, if there is one. Throws Error.
ExecutionTrace load_trace(const std::string& file, const std::string& communicator_file);

// For --help: "a file of ranvier train --record (.toml), …".
std::string workload_help();

}  // namespace ranvier::simulation
