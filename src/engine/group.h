// How some ranks of a communicator come to be one of their own: who they are, and what they tell each other over the
// communicator that they come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/rendezvous.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

// The ranks that name this rank's color, by (key, rank). All ranks of `whole` call.
std::vector<Rank> members_of(Communicator& whole, int color, int key);

// Of the communicator of `members` of one with the options `whole`. `name`: that no other part of it has.
CommunicatorOptions options_of_part(const CommunicatorOptions& whole, const std::vector<Rank>& members,
                                    const std::string& name);

// Gives the texts of `members` in their order. All ranks of `whole` call it, those that take no part with no text.
// `whole` outlives it.
Exchange exchange_over(Communicator& whole, std::vector<Rank> members);

// The same by messages between the members alone, who call it.
Exchange exchange_between(Communicator& whole, std::vector<Rank> members, std::uint64_t tag);

}  // namespace ranvier::engine
