// A design as people read it, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "design/options.h"

namespace ranvier::design {

void print(const Options&, const DesignProblem&, const Design&);
nlohmann::json to_json(const Options&, const DesignProblem&, const Design&);

}  // namespace ranvier::design
