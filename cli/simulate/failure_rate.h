// What failures that come by chance cost: with the checkpoints that were asked for, and with as many as are best.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "ranvier/simulate.h"

namespace ranvier::simulation {

struct FailureRate {
  double step_ns;  // without failures
  StepWithFailures chosen;
  StepWithFailures best;
};
FailureRate failure_rate(double step_ns, Rank world, FailureModel);

void print(const FailureRate&);
nlohmann::json to_json(const FailureRate&);

}  // namespace ranvier::simulation
