// Options become a problem: workloads found, placed on the network and added up.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "design/options.h"
#include "ranvier/execution_trace.h"

namespace ranvier::design {

// What --workload names, read once for however many networks.
using Source = std::variant<Workload, ExecutionTrace>;
std::vector<Source> load_workloads(const Options&);

struct Question {
  // One collective of the workloads, and what it spans.
  struct Sent {
    Communication what;
    GroupSizes group;
  };
  DesignProblem problem = {};
  std::optional<StepGraph> graph = {};  // with --overlap: what the cases of the problem are paths of
  StepTime traffic = {};                // all that a step sends, on whichever path
  std::vector<Sent> sent = {};          // with mixed chunk orders: one of each kind and group
};
// On the network of the options.
Question question_of(const Options&, const std::vector<Source>&);
// Solves it, or the same with other constraints, in the way that the options ask for.
Design solve(const Options&, const Question&, DesignProblem&);

// With mixed chunk orders: those of each kind of collective and group, on these bandwidths.
struct ChunkOrders {
  Collective collective;
  GroupSizes group;
  std::vector<OrderShare> orders;
};
std::vector<ChunkOrders> chunk_orders(const Question&, const Design&);

}  // namespace ranvier::design
