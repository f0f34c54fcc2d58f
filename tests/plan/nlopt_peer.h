// NLopt on the same problem: what the tests and the benchmark compare with.
#pragma once

#include <vector>

#include "ranvier/design.h"

namespace ranvier {

// The best objective that sequential quadratic programming (D. Kraft, 1988) finds from `start`, evaluated where it
// ended; it may end early, and equations hold there to its own tolerance.
double nlopt_objective(const DesignProblem&, const std::vector<double>& start);

}  // namespace ranvier
