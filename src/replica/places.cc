#include "replica/places.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/fnv.h"
#include "base/host.h"
#include "base/split.h"
#include "ranvier/error.h"
#include "ranvier/synchronizer.h"
#include "ranvier/text.h"

namespace ranvier::replica {
namespace {

Groups blocks(std::size_t world, std::size_t count) {
  Groups groups(world);
  for (std::size_t rank = 0; rank < world; ++rank) groups[rank] = static_cast<int>(rank * count / world);
  return groups;
}

void demand_inside(const std::string& inner, const Groups& groups, const std::string& outer, const Groups& around) {
  for (std::size_t a = 0; a < groups.size(); ++a)
    for (std::size_t b = a + 1; b < groups.size(); ++b)
      if (groups[a] == groups[b] && around[a] != around[b])
        throw Error(ErrorKind::usage, fmt::format("ranks {} and {} share a group of '{}' but not of '{}' around it; "
                                                  "place the levels so that each group lies in one of the next level",
                                                  a, b, inner, outer));
}

}  // namespace

std::map<std::string, Groups> parse_places(std::string_view text, Rank world) {
  std::map<std::string, Groups> places;
  if (text.empty()) return places;
  for (const auto part : split(text, ',')) {
    const auto equals = part.find('=');
    const auto level = part.substr(0, equals);
    if (level.empty() || equals == std::string_view::npos)
      throw Error(ErrorKind::usage, fmt::format("the places '{}' are not how many of each level; write node=2 or "
                                                "node=4,rack=2",
                                                text));
    const auto count = parse_number<std::size_t>(part.substr(equals + 1));
    if (!count || *count < 1 || *count > static_cast<std::size_t>(world))
      throw Error(ErrorKind::usage,
                  fmt::format("'{}' does not place {} workers; give a whole number from 1 to {}", part, world, world));
    if (!places.emplace(level, blocks(static_cast<std::size_t>(world), *count)).second)
      throw Error(ErrorKind::usage,
                  fmt::format("the places '{}' say twice how many of '{}' there are; say it once", text, level));
  }
  return places;
}

Groups by_host(std::span<const std::uint64_t> hosts) {
  std::vector<std::uint64_t> known;
  Groups groups;
  for (const auto host : hosts) {
    const auto place = std::ranges::find(known, host);
    groups.push_back(static_cast<int>(place - known.begin()));
    if (place == known.end()) known.push_back(host);
  }
  return groups;
}

std::vector<Groups> arrange(std::span<const std::string> levels, const std::map<std::string, Groups>& places,
                            const Groups& hosts) {
  const std::size_t world = hosts.size();
  // Nodes are known by whatever policy: codes go between them, and bytes are counted by them.
  std::vector<std::string_view> known{"node"};
  std::ranges::copy_if(levels, std::back_inserter(known), [](const std::string& level) { return level != "node"; });
  for (const auto& [level, groups] : places)
    if (std::ranges::find(known, level) == known.end())
      throw Error(
          ErrorKind::usage,
          fmt::format("{}; others are there where the policy names them, as hierarchy:node=1,{}=8,world=64 does",
                      unknown_name("level to place", level, known), level));
  std::vector<Groups> groups{blocks(world, world)};
  for (const auto& level : levels) {
    if (const auto placed = places.find(level); placed != places.end())
      groups.push_back(placed->second);
    else if (level == "node")
      groups.push_back(hosts);
    else if (&level == &levels.back())
      groups.push_back(blocks(world, 1));
    else
      throw Error(ErrorKind::usage, fmt::format("nothing says which workers share a '{}'; write --place {}=N for so "
                                                "many of them, place=\"{}=N\" in Python",
                                                level, level, level));
    if (groups.size() > 2) demand_inside(levels[groups.size() - 3], groups[groups.size() - 2], level, groups.back());
  }
  if (std::ranges::any_of(groups.back(), [](int group) { return group != 0; }))
    throw Error(ErrorKind::usage, fmt::format("the last level, '{}', has more than one group, which would never "
                                              "exchange anything; add a level around it, such as world=64",
                                              levels.back()));
  return groups;
}

}  // namespace ranvier::replica

namespace ranvier {

std::vector<std::vector<int>> place_levels(const SyncPolicy& policy, std::string_view place,
                                           std::span<const std::uint64_t> hosts) {
  return replica::arrange(policy.levels(), replica::parse_places(place, static_cast<Rank>(hosts.size())),
                          replica::by_host(hosts));
}

void check_places(std::string_view sync, std::string_view place, Rank world) {
  const std::vector<std::uint64_t> one_host(static_cast<std::size_t>(world), 0);
  place_levels(*make_sync_policy(sync, {}), place, one_host);
}

std::uint64_t host_number(std::string_view node) {
  std::string identity = host_identity();
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0) identity += name.data();
  if (!node.empty()) identity += fmt::format(" {}", node);
  return fnv1a(identity);
}

}  // namespace ranvier
