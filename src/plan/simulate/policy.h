// Policies over steps whose collectives are simulated once for many of them.
#pragma once

#include <cstdint>

#include "plan/simulate/collective_times.h"
#include "ranvier/simulate.h"
#include "ranvier/sync.h"

namespace ranvier::plan {

// See ranvier::simulate_policy; `times` as plan::simulate_step has them.
PolicyPrediction simulate_policy(SyncPolicy&, const Workload&, const StepSimulation&, CollectiveTimes& times,
                                 const PolicySimulation& = {});
// Of a policy with parameter servers.
PolicyPrediction simulate_servers(const SyncPolicy&, const Workload&, const StepSimulation&, CollectiveTimes& times,
                                  const PolicySimulation&);

// Of one by which workers average with one peer at a time.
PolicyPrediction simulate_peers(const SyncPolicy&, const Workload&, const StepSimulation&, CollectiveTimes& times,
                                const PolicySimulation&);

// Averages of all that the workload averages in a step, and nothing else.
Workload only_averages(Workload);
// What a replica does by itself.
Workload without_averages(Workload);
// Of a step, what slow workers are slow at: their passes, and with them a pipeline at filling; not loading data and the
// optimizer.
double passes_ns(const StepPrediction&, const Workload&);

}  // namespace ranvier::plan
