#include "simulate/levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <sstream>

#include "ranvier/error.h"
#include "ranvier/synchronizer.h"

namespace ranvier::simulation {

std::vector<std::vector<int>> levels_of(const SyncPolicy& policy, const std::string& place, Rank replicas) {
  const auto& levels = policy.levels();
  if (levels.size() < 2) return {};
  if (std::ranges::count(levels, "node") > 0 && place.find("node=") == std::string::npos)
    throw Error(ErrorKind::usage, fmt::format("--place {} says of no replica in which node it is, and '{}' asks for "
                                              "that; add node=2 for two of them",
                                              place, policy.spec()));
  // Which hosts they are on nobody knows here.
  return place_levels(policy, place, std::vector<std::uint64_t>(static_cast<std::size_t>(replicas), 0));
}

std::string place_for(const SyncPolicy& policy, const std::string& place) {
  std::string own;
  std::istringstream words(place);
  for (std::string word; std::getline(words, word, ',');) {
    const auto level = word.substr(0, word.find('='));
    if (level != "node" && std::ranges::count(policy.levels(), level) == 0) continue;
    own += (own.empty() ? "" : ",") + word;
  }
  return own;
}

}  // namespace ranvier::simulation
