#include "plan/trace_groups.h"

#include <fmt/format.h>

#include "ranvier/error.h"

namespace ranvier::plan {

std::span<const Rank> ranks_of(const ExecutionTrace& trace, const Operation& operation) {
  const std::string& name = operation.process_group;
  const auto group = trace.process_groups.find(name);
  if (group != trace.process_groups.end()) return group->second;
  // PyTorch's first one is of all ranks, which ASTRA-sim takes for granted.
  if (name.empty() || name == "0") return {};
  throw Error(ErrorKind::usage,
              fmt::format("{} is of process group '{}', and nothing says which ranks that has; add --communicator "
                          "FILE.json with {{\"{}\": [0, 1, …]}}",
                          operation.name, name, name));
}

void check_rank(Rank rank, std::int64_t world, std::string_view network, const Operation& operation) {
  if (rank >= world)
    throw Error(ErrorKind::usage,
                fmt::format("{} communicates with rank {}, and {} has {} NPUs", operation.name, rank, network, world));
}

// Writers of traces have four of them, whatever the network will be.
void check_dimensions(const Operation& operation, std::size_t dimensions, std::string_view network) {
  if (operation.dimensions.size() < dimensions)
    throw Error(ErrorKind::usage, fmt::format("{} says of {} dimensions whether it spans them, and {} has {}",
                                              operation.name, operation.dimensions.size(), network, dimensions));
}

}  // namespace ranvier::plan
