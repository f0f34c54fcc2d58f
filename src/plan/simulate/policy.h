// Policies over steps whose collectives are simulated once for many of them.
#pragma once

#include <vector>

#include "plan/simulate/collective_times.h"
#include "ranvier/simulate.h"
#include "ranvier/sync.h"

namespace ranvier::plan {

// Long enough for the mean of any period that is worth the name.
inline constexpr std::uint64_t steps_of_a_policy = 10'000;

// See ranvier::simulate_policy; `times` as plan::simulate_step has them. No `replicas`: none is slow.
PolicyPrediction simulate_policy(SyncPolicy&, const Workload&, const StepSimulation&, CollectiveTimes& times,
                                 std::uint64_t steps, std::vector<Slowness> replicas = {});
// Averages of all that the workload averages in a step, and nothing else.
Workload only_averages(Workload);

}  // namespace ranvier::plan
