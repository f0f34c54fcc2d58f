#include "simulate/workload.h"

#include <fmt/format.h>

#include "ranvier/chakra.h"
#include "ranvier/design_files.h"
#include "ranvier/workload_file.h"

namespace ranvier::simulation {

Workload load_workload(const std::string& spec_or_file) {
  if (spec_or_file.ends_with(".toml")) return read_workload(spec_or_file);
  if (is_trace(spec_or_file)) return read_chakra_trace(spec_or_file);
  if (spec_or_file.ends_with(".txt")) return read_astra_workload(spec_or_file, false);
  return make_workload(spec_or_file);
}

bool is_trace(std::string_view name) { return name.ends_with(".et"); }

ExecutionTrace load_trace(const std::string& file, const std::string& communicator_file) {
  ExecutionTrace trace = read_chakra_graph(file);
  if (!communicator_file.empty())
    for (auto& [group, ranks] : read_process_groups(communicator_file)) trace.process_groups[group] = std::move(ranks);
  return trace;
}

std::string workload_help() {
  return fmt::format(
      "what is trained: a file of ranvier train --record (.toml), a Chakra trace (.et), one of ASTRA-sim 1.0 (.txt), "
      "or {}; "
      "behind a name tp=, pp=, ep= divide it",
      fmt::join(workload_names(), ", "));
}

}  // namespace ranvier::simulation
