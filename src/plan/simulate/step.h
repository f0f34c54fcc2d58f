// Steps whose collectives are simulated once for many of them.
#pragma once

#include "plan/simulate/collective_times.h"
#include "ranvier/execution_trace.h"
#include "ranvier/simulate.h"
#include "ranvier/workload.h"

namespace ranvier::plan {

// Whether it averages gradients over replicas, among the collectives of a weight gradient: what buckets hold.
bool is_average(const Communication&);

// Of a sum of so many bytes, and of an average of gradients.
const std::string& algorithm_for(const StepSimulation&, double bytes);
std::string average_algorithm_for(const StepSimulation&, double bytes);

// `times` are those of this workload's degrees, of a trace of an undivided one, and of how.options.
StepPrediction simulate_step(const Workload&, const StepSimulation& how, CollectiveTimes& times);
StepPrediction simulate_step(const ExecutionTrace&, const StepSimulation& how, CollectiveTimes& times);
// About what that takes, of fewer simulations: CollectiveTimes::Lengths::some.
double estimated_step_ns(const Workload&, const StepSimulation& how, CollectiveTimes& times);
// What that takes at least: the same step with CollectiveTimes::at_least.
double least_step_ns(const Workload&, const StepSimulation& how, CollectiveTimes& times);
double least_step_ns(const ExecutionTrace&, const StepSimulation& how, CollectiveTimes& times);

}  // namespace ranvier::plan
