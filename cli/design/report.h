// A design as people read it, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "design/problem.h"

namespace ranvier::design {

void print(const Options&, const Question&, const Design&);
nlohmann::json to_json(const Options&, const Question&, const Design&);

}  // namespace ranvier::design
