// What one world is predicted to do: a step of training, or one all_reduce.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ranvier/execution_trace.h"
#include "ranvier/plan.h"
#include "ranvier/simulate.h"
#include "simulate/options.h"

namespace ranvier::simulation {

// What one run knows of its workload: read and measured once, whatever the number of worlds.
struct Training {
  Workload workload = {};
  std::optional<ExecutionTrace> trace = {};  // instead of it
  CodecSpeed codec = {};
};
Training training_of(const Options&);

// Throws Error{usage} for a world without the rank that --straggler names.
void check_straggler(const Options&, Rank world);
// How its messages go: those of Options::step, and as slowly as --straggler says. Throws as check_straggler() does.
SimulateOptions transfers_of(const Options&, Rank world);
// Throws Error{usage} for a world in which --sync cannot place its levels or its slow workers.
void check_policy(const Options&, const Workload&, Rank world);

struct Operation {
  Schedule schedule;
  std::size_t count;  // of values of 4 bytes
  Topology topology;  // as it is, or as sums of switches see it
};
// Options::bytes, by `algorithm` as parse_algorithm takes it, or in_network.
Operation all_reduce_of(const Options&, const std::string& algorithm, const Topology&);

struct Prediction {
  Rank world;
  StepPrediction step = {};
  std::optional<PolicyPrediction> policy = {};
  std::size_t slice_bytes = 0;  // of one all_reduce: as SimulatedRun has it
  std::vector<SimulatedMessage> messages = {};
};
// With Options::step, on that network. Throws Error{usage}.
Prediction predict(const Options&, const Training&, const Topology&);

}  // namespace ranvier::simulation
