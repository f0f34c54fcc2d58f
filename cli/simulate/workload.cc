#include "simulate/workload.h"

#include <fmt/format.h>

#include "flags.h"
#include "ranvier/chakra.h"
#include "ranvier/design_files.h"
#include "ranvier/error.h"
#include "ranvier/network.h"
#include "ranvier/workload_file.h"

namespace ranvier::simulation {

bool names_an_astra_text(std::string_view name) { return name.ends_with(".txt"); }

Workload load_workload(const std::string& spec_or_file, const std::string& communicator_file,
                       const std::string& network) {
  if (spec_or_file.ends_with(".toml")) return read_workload(spec_or_file);
  if (names_a_trace(spec_or_file)) return read_chakra_trace(spec_or_file);
  if (!names_an_astra_text(spec_or_file)) {
    cli::require_name_in_front("workload", spec_or_file, workload_names(),
                               "a file of ranvier train --record (.toml), Chakra (.et) or ASTRA-sim (.txt)");
    return make_workload(spec_or_file);
  }
  if (communicator_file.empty()) return read_astra_workload(spec_or_file, AstraGroups::header_if_any);
  if (!names_a_shape(network))
    throw Error(ErrorKind::usage,
                fmt::format("--communicator says how much of each dimension the groups of {} span, and {} has none; "
                            "give a shape as --topology, such as RI(4)_SW(8)",
                            spec_or_file, network));
  const NetworkShape shape = parse_network(network);
  return with_groups(read_astra_workload(spec_or_file, AstraGroups::elsewhere),
                     read_libra_communicator(communicator_file, shape), shape);
}

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
