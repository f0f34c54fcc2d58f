// How some ranks of a communicator come to be one of their own: who they are, and what they tell each other over the
// communicator that they come from.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/rendezvous.h"
#include "ranvier/communicator.h"

namespace ranvier::engine {

// The ranks that name this rank's color, by (key, rank). All ranks of `whole` call.
std::vector<Rank> members_of(Communicator& whole, int color, int key);

// Of the communicator of `members` of one with the options `whole`, the `number`th that is split off from it.
CommunicatorOptions options_of_part(const CommunicatorOptions& whole, const std::vector<Rank>& members, int color,
                                    std::uint32_t number);

// Gives the texts of `members` in their order. All ranks of `whole` call it, those that take no part with no text.
// `whole` outlives it.
Exchange exchange_over(Communicator& whole, std::vector<Rank> members);

}  // namespace ranvier::engine
