// Which replicas share a node, a rack and so on, of networks that need not be there.
#pragma once

#include <string>
#include <vector>

#include "ranvier/sync.h"
#include "ranvier/types.h"

namespace ranvier::simulation {

// As PolicySimulation has them; none of a policy that is everybody's. `place` is what --place says. Throws Error{usage}
// where it says of no replica in which node it is, and the policy asks for that.
std::vector<std::vector<int>> levels_of(const SyncPolicy& policy, const std::string& place, Rank replicas);
// What of a place for several policies is this one's: nodes, and the levels that it names.
std::string place_for(const SyncPolicy& policy, const std::string& place);

}  // namespace ranvier::simulation
