// A simulated timeline in the trace event format of Chrome, which ui.perfetto.dev opens.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "ranvier/simulate.h"

namespace ranvier::simulation {

nlohmann::json trace_json(const StepPrediction&, const std::vector<SimulatedMessage>&);

}  // namespace ranvier::simulation
