// A step as it was recorded: what one rank computes and sends, and what each of that waits for.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ranvier/types.h"
#include "ranvier/workload.h"

namespace ranvier {

// Whether a file of that name is one of Chakra's: .et, or .et.gz where it was compressed with gzip.
inline bool names_a_trace(std::string_view name) { return name.ends_with(".et") || name.ends_with(".et.gz"); }

struct Operation {
  std::string name = {};  // for messages: which one of the trace it is
  double compute_ns = 0;
  std::optional<Communication> communication = {};  // of the groups below, not of a role
  // Whose ranks take part: of a send and a receive its two ends, where they are known; the dimensions, each of them
  // whole, where the trace says them; else the process group of that name.
  std::optional<std::pair<Rank, Rank>> ends = {};
  std::vector<bool> dimensions = {};
  std::string process_group = {};
  std::vector<std::size_t> after = {};  // numbers of operations that stand before this one
};

// By name the ranks of each process group; none: all.
using ProcessGroups = std::map<std::string, std::vector<Rank>>;

struct ExecutionTrace {
  std::string name = {};
  std::vector<Operation> operations = {};  // in an order that they may be executed in
  ProcessGroups process_groups = {};
};

}  // namespace ranvier
