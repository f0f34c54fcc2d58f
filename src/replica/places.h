// Where ranks live: which of them share a node, a rack, …
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/communicator.h"

namespace ranvier::replica {

using Groups = std::vector<int>;  // by rank: the number of its group, from 0

// "node=2,rack=1": so many of each kind, ranks in blocks of consecutive ones that differ by one rank at most.
// Throws Error{usage} for other text and for a count that is not 1 … world.
std::map<std::string, Groups> parse_places(std::string_view text, Rank world);

// Ranks of one host by what each calls its own.
Groups by_host(std::span<const std::uint64_t> hosts);

// Of each level its groups: of those in `places` as it says, of "node" otherwise by host; the last one otherwise holds
// everybody. Level 0, each rank alone, comes first. Throws Error{usage} for a level that nobody has placed, for groups
// that lie in several of the level around them, and for a last level that leaves somebody out.
std::vector<Groups> arrange(std::span<const std::string> levels, const std::map<std::string, Groups>& places,
                            const Groups& hosts);

}  // namespace ranvier::replica
