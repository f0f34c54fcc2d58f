// A choice in words, why it is that one, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ranvier/plan.h"

namespace ranvier::planning {

struct Question;

// "ring, 5 MB buckets, no codec", and behind that whatever there was to choose from: "udp", "ranks placed 0,2,1",
// "by local:16", "llama3-8b:tp=4,pp=1,dp=2,batch=16".
std::string describe(const Question&, const PlanChoice&);
// The best that differs from the first in more than the size of its buckets and in how its algorithm is named: whose
// step takes another time. Null where all are alike.
const PlanChoice* second_best(const std::vector<PlanChoice>& ranked);
// "chosen: …", "second: …", whether compression pays here at all, and each codec, transport, placement and policy that
// was weighed: "codec: at 10 Gbit/s int8 loses 4.0 %: off".
std::vector<std::string> reasons(const Question&, const std::vector<PlanChoice>& ranked);
nlohmann::json to_json(const Question&, const PlanChoice&);

}  // namespace ranvier::planning
