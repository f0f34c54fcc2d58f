// What ranks have of their own and what they must have alike: rank 0 keeps the one in its files, all check the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ranvier/communicator.h"

namespace ranvier::trainer {

// Everybody's, on rank 0; empty elsewhere.
std::vector<std::vector<std::byte>> collect_states(Communicator& comm, std::vector<std::byte> own);
// What rank 0 kept of this rank: the reverse of collect_states. `kept` is looked at on rank 0.
std::vector<std::byte> hand_out_states(Communicator& comm, std::vector<std::vector<std::byte>> kept);

// FNV-1a, 64 bits: tells apart any two sets of parameters that a broken exchange is likely to leave.
std::uint64_t hash_of(std::span<const float> values);
// Throws Error{mismatch} naming the first rank whose `mine` is another than rank 0's.
void require_equal(Communicator& comm, std::uint64_t mine, const std::string& what);

}  // namespace ranvier::trainer
