// What errors call ranks. A group numbers its own from 0, and whoever reads an error looks for a worker by its number
// in the world: so both are said where they differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/fnv.h"
#include "ranvier/types.h"

namespace ranvier {

// What the members of a group are called in the world; `whole`: that of the communicator that they come from, see
// CommunicatorOptions::world_ranks.
inline std::vector<Rank> world_ranks_of(const std::vector<Rank>& members, const std::vector<Rank>& whole) {
  if (whole.empty()) return members;
  std::vector<Rank> ranks;
  for (const Rank member : members) ranks.push_back(whole.at(static_cast<std::size_t>(member)));
  return ranks;
}

class RankNames {
 public:
  RankNames() = default;  // of a world
  // `world_ranks`: CommunicatorOptions::world_ranks.
  explicit RankNames(std::vector<Rank> world_ranks) : world_ranks_(std::move(world_ranks)) {}

  // "3", or "3 (1 of its group)".
  std::string number(Rank rank) const {
    if (!differs(rank)) return std::to_string(rank);
    return std::to_string(world_ranks_[static_cast<std::size_t>(rank)]) + " (" + std::to_string(rank) +
           " of its group)";
  }
  bool differs(Rank rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return rank >= 0 && index < world_ranks_.size() && world_ranks_[index] != rank;
  }
  // Its number in the world.
  Rank in_world(Rank rank) const { return differs(rank) ? world_ranks_[static_cast<std::size_t>(rank)] : rank; }
  bool is_world() const { return world_ranks_.empty(); }
  // The same wherever all of them have the same names, and 0 of a world.
  std::uint64_t number_of_all() const {
    std::string all;
    for (const Rank rank : world_ranks_) all += std::to_string(rank) + ',';
    return all.empty() ? 0 : fnv1a(all);
  }
  // "rank 3", likewise.
  std::string operator()(Rank rank) const { return "rank " + number(rank); }

 private:
  std::vector<Rank> world_ranks_;  // by rank; empty: a world's own
};

}  // namespace ranvier
