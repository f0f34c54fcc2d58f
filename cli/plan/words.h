// A choice in words, and as the file that training obeys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/plan.h"

namespace ranvier::planning {

// "ring, 5 MB buckets, no codec"
std::string describe(const PlanChoice&);
// "at 10 Gbit/s int8 loses 4.0 %: off", of the best with this codec against the best without.
std::string verdict(const std::vector<PlanChoice>& ranked, std::string_view codec, double bytes_per_second);
// The best that differs from the first in more than the size of its buckets and in how its algorithm is named: whose
// step takes another time. Null where all are alike.
const PlanChoice* second_best(const std::vector<PlanChoice>& ranked);
nlohmann::json to_json(const PlanChoice&);

}  // namespace ranvier::planning
