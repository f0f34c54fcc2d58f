// From a question, what may be chosen, to a plan and why it is that one. `ranvier plan` asks about everything; training
// whose plan was wrong asks again about what it can still change.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/budget.h"
#include "plan/options.h"
#include "ranvier/plan.h"
#include "ranvier/plan_file.h"

namespace ranvier::planning {

inline constexpr std::array<std::string_view, 3> default_codecs{"bf16", "int8", "hadamard:32+int4"};

struct Question {
  std::vector<std::string> names;  // of the workloads, as the plan has them
  std::vector<Workload> divisions;
  std::optional<ExecutionTrace> trace;  // in place of them: by its own graph
  std::string communicator;             // its file, as the plan has it
  std::vector<PlanNetwork> networks;
  std::vector<std::string> network_names;  // as the plan has them
  std::vector<std::string> losses;         // of each, what its loss means; empty: it has none, or nobody counted
  LinkSpeed speed = {};                    // of every link; of measured ones the median
  bool is_measured = false;
  std::string place = {};  // of policies with nodes
  PlanSearch search;
};
// Of what a step averages.
double gradient_bytes(const Workload&);
// With the speed of codecs on this machine, and which algorithms are the fastest by size. Asks the budget from then on,
// which has to outlive it. Throws Error, kind timeout where the budget's limit is too short for anything.
Question question_of(const Options&, Budget&);
// Fills what of PlanSearch and PlanNetwork follows from what is there already: buckets, the fastest algorithms by size,
// what policies are asked about, and when it is enough.
void complete(Question&, Budget&);

struct Answer {
  std::vector<PlanChoice> ranked;
  Plan plan;
};
Answer answer(const Question&);

}  // namespace ranvier::planning
