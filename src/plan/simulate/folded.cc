// A world in which every rank does the same, as one rank. Ranks are the elements of a group that acts on itself by
// shifting: numbers modulo the world, the coordinates of a grid, or bits under exclusive or. If the program of every
// rank is that of rank 0, shifted, and so are all routes, then at every moment every rank stands where rank 0 stands:
// what it sends to the rank that is d away arrives there when the same message of the rank -d away arrives at itself.
// Links that shifts carry into each other become one, which a flow crosses as often as its path crosses any of them;
// where there are fewer than ranks, as between the switches of a tree, as much more often as ranks share each.
#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>

#include "plan/simulate/instance.h"
#include "ranvier/network.h"
#include "ranvier/text.h"

namespace ranvier::plan {
namespace {

constexpr Rank most_proven = 256;

class Group {
 public:
  // Shifts along each coordinate of a grid whose last dimension counts fastest.
  static Group grid(std::vector<Rank> dims) { return Group(std::move(dims), false); }
  static Group exclusive_or(Rank world) { return Group({world}, true); }

  // The element that takes a to b.
  Rank difference(Rank a, Rank b) const {
    if (exclusive_or_) return a ^ b;
    Rank result = 0;
    Rank stride = 1;
    for (std::size_t i = dims_.size(); i-- > 0; stride *= dims_[i])
      result += (b / stride % dims_[i] - a / stride % dims_[i] + dims_[i]) % dims_[i] * stride;
    return result;
  }

 private:
  Group(std::vector<Rank> dims, bool exclusive_or) : dims_(std::move(dims)), exclusive_or_(exclusive_or) {}

  std::vector<Rank> dims_;
  bool exclusive_or_;
};

// A link by what shifting leaves of it: kind, and the difference of its ends. Switches stay in their dimension, those
// of a tree on their level, and up remains up.
using LinkKind = std::tuple<bool, bool, Rank>;

LinkKind kind_of(const Group& group, const Topology& topology, LinkNumber number) {
  const Link& link = topology.links[number];
  const bool from_rank = link.from < topology.world;
  const bool to_rank = link.to < topology.world;
  if (!from_rank && !to_rank) return {false, false, link.from < link.to ? link.dimension : -link.dimension};
  return {from_rank, to_rank, from_rank && to_rank ? group.difference(link.from, link.to) : link.dimension};
}

class Folder {
 public:
  Folder(const Job& job, const Group& group) : job_(job), group_(group) {}

  // `proven`: that shifts leave everything as it is.
  std::optional<Instance> fold(bool proven) {
    if (!is_invariant()) return std::nullopt;
    const Program first = program_of(job_, 0);
    if (!proven && !is_alike(first)) return std::nullopt;
    return build(first);
  }

  // Whether it was proven for all lengths whose chunks are cut like this one's.
  bool rounds_are_alike() const { return rounds_are_alike_; }

 private:
  bool is_alike(const Program& first) {
    const auto first_keys = keys_of(first, 0);
    std::map<Rank, std::vector<LinkKind>> routes;
    for (const auto& [shift, peer] : peers_of(first, 0)) routes.emplace(shift, route(0, peer));
    std::map<Rank, std::vector<std::uint32_t>> crossed;  // by shift and link, where several switches are in the way
    for (const Rank rank : sample()) {
      const Program other = program_of(job_, rank);
      if (!alike(first.sends, other.sends) || !alike(first.receives, other.receives)) return false;
      if (keys_of(other, rank) != first_keys) return false;
      for (const auto& [shift, peer] : peers_of(other, rank)) {
        if (route(rank, peer) != routes.at(shift)) return false;
        if (job_.topology.switches < 2 || job_.schedule.world > most_proven) continue;
        auto& times = crossed.try_emplace(shift, job_.topology.links.size()).first->second;
        for (const LinkNumber link : job_.topology.path(rank, peer)) ++times[link];
      }
    }
    return are_alike(crossed);
  }

  // Whether shifts carry links to links as fast. Shifting moves every rank, so that a kind of link that is there for
  // one rank must be there once for each.
  bool is_invariant() {
    for (LinkNumber number = 0; number < job_.topology.links.size(); ++number) {
      const LinkKind kind = kind_of(group_, job_.topology, number);
      ++count_[kind];
      const auto [found, added] = kinds_.try_emplace(kind, number);
      const Link& known = job_.topology.links[found->second];
      const LinkSpeed& one = known.speed;
      const LinkSpeed& other = job_.topology.links[number].speed;
      if (known.dimension != job_.topology.links[number].dimension) return false;
      if (one.bytes_per_second != other.bytes_per_second || one.latency != other.latency ||
          one.burst_bytes != other.burst_bytes)
        return false;
    }
    return std::all_of(count_.begin(), count_.end(), [&](const auto& kind) {
      const bool of_ranks = std::get<0>(kind.first) || std::get<1>(kind.first);
      return of_ranks ? kind.second == job_.schedule.world : job_.schedule.world % kind.second == 0;
    });
  }

  // Whether all links of a kind are crossed by as many messages of each shift.
  bool are_alike(const std::map<Rank, std::vector<std::uint32_t>>& crossed) const {
    for (const auto& [shift, times] : crossed)
      for (LinkNumber link = 0; link < times.size(); ++link)
        if (times[link] != times[kinds_.at(kind_of(group_, job_.topology, link))]) return false;
    return true;
  }

  std::vector<Rank> sample() const {
    const Rank world = job_.schedule.world;
    std::vector<Rank> ranks;
    if (world <= most_proven) {
      ranks.resize(static_cast<std::size_t>(world));
      std::iota(ranks.begin(), ranks.end(), 0);
      return ranks;
    }
    for (const Rank rank : {1, world / 3, world / 2, world - 1}) ranks.push_back(rank);
    return ranks;
  }

  // Rounds say which pieces come first at other lengths.
  bool alike(const std::vector<Instruction>& a, const std::vector<Instruction>& b) {
    rounds_are_alike_ &= std::ranges::equal(a, b, {}, &Instruction::round, &Instruction::round);
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Instruction& one, const Instruction& other) {
      return one.action == other.action && one.bytes == other.bytes && one.after == other.after;
    });
  }

  // By instruction: which shift takes the rank to its receiver, or its sender to it.
  std::vector<Rank> keys_of(const Program& program, Rank rank) const {
    std::vector<Rank> keys;
    keys.reserve(program.sends.size() + program.receives.size());
    for (const Instruction& each : program.sends) keys.push_back(group_.difference(rank, each.peer));
    for (const Instruction& each : program.receives)
      keys.push_back(each.peer < 0 ? -1 : group_.difference(each.peer, rank));
    return keys;
  }

  std::vector<LinkKind> route(Rank from, Rank to) const {
    std::vector<LinkKind> kinds;
    for (const LinkNumber link : job_.topology.path(from, to)) kinds.push_back(kind_of(group_, job_.topology, link));
    std::sort(kinds.begin(), kinds.end());
    return kinds;
  }

  // By shift: the rank that `rank` sends to.
  std::map<Rank, Rank> peers_of(const Program& program, Rank rank) const {
    std::map<Rank, Rank> peers;
    for (const Instruction& each : program.sends) peers.emplace(group_.difference(rank, each.peer), each.peer);
    return peers;
  }

  Instance build(const Program& program) {
    Instance instance;
    instance.folded = true;
    std::map<LinkKind, std::uint32_t> numbers;
    for (const auto& [kind, link] : kinds_) {
      numbers.emplace(kind, static_cast<std::uint32_t>(instance.links.size()));
      const Link& each = job_.topology.links[link];
      instance.links.push_back({.speed = {each.speed.bytes_per_second / 1e9, each.speed.burst_bytes},
                                .from = vertex_name(job_.topology, each.from),
                                .to = vertex_name(job_.topology, each.to),
                                .dimension = each.dimension});
    }
    std::map<Rank, std::uint32_t> channels;
    const auto channel = [&](Rank shift, Rank to) {
      const auto [found, added] = channels.try_emplace(shift, static_cast<std::uint32_t>(channels.size()));
      if (!added) return found->second;
      Instance::Channel made{.route = {}, .from = 0, .to = to};
      std::map<std::uint32_t, double> crossings;
      for (const LinkNumber link : job_.topology.path(0, to)) {
        const LinkKind kind = kind_of(group_, job_.topology, link);
        crossings[numbers.at(kind)] += static_cast<double>(job_.schedule.world) / count_.at(kind);
        made.latency_ns += static_cast<double>(job_.topology.links[link].speed.latency.count());
      }
      for (const auto& [link, times] : crossings) made.route.push_back({link, times});
      instance.channels.push_back(std::move(made));
      return found->second;
    };
    std::vector<std::uint32_t> sends;
    std::vector<std::uint32_t> receives;
    sends.reserve(program.sends.size());
    receives.reserve(program.receives.size());
    for (const Instruction& each : program.sends) sends.push_back(channel(group_.difference(0, each.peer), each.peer));
    for (const Instruction& each : program.receives)
      receives.push_back(each.peer < 0 ? 0 : channels.at(group_.difference(each.peer, 0)));
    instance.programs.push_back(program);
    instance.send_channels.push_back(std::move(sends));
    instance.receive_channels.push_back(std::move(receives));
    instance.slowdown.push_back(1);
    return instance;
  }

  const Job& job_;
  const Group& group_;
  std::map<LinkKind, LinkNumber> kinds_;
  std::map<LinkKind, Rank> count_;
  bool rounds_are_alike_ = true;
};

}  // namespace

std::vector<Rank> grid_dims(const Topology& topology) {
  std::vector<Rank> dims;
  if (names_a_shape(topology.name)) {
    for (const auto& each : parse_network(topology.name).dimensions) dims.insert(dims.begin(), each.size);
    return dims;
  }
  const auto colon = topology.name.find(':');
  if (!topology.name.starts_with("torus") || colon == std::string::npos) return dims;
  for (std::size_t at = colon + 1; at < topology.name.size();) {
    std::size_t used = 0;
    dims.push_back(static_cast<Rank>(std::stol(topology.name.substr(at), &used)));
    at += used + 1;
  }
  return dims;
}

namespace {

// How a fat tree can be shifted. Its routes go by digits of the destination, and so do its switches: where it has
// powers of two of everything, single bits may be turned around; without oversubscription, digits may be shifted. None
// for other networks with several switches.
std::vector<Group> groups_of_tree(const Topology& topology) {
  std::vector<Group> groups;
  const std::string_view name = topology.name;
  constexpr std::string_view tree = "fat_tree:";
  constexpr std::string_view narrower = ",oversubscription=";
  if (!name.starts_with(tree)) return groups;
  const std::string_view numbers = name.substr(tree.size());
  const auto comma = numbers.find(narrower);
  const auto arity = parse_number<Rank>(numbers.substr(0, comma));
  const auto times = comma == std::string_view::npos ? 1 : parse_number<Rank>(numbers.substr(comma + narrower.size()));
  if (!arity || !times) return groups;
  const auto is_binary = [](Rank number) { return std::has_single_bit(static_cast<unsigned>(number)); };
  if (is_binary(topology.world) && is_binary(*arity) && is_binary(*times))
    groups.push_back(Group::exclusive_or(topology.world));
  std::vector<Rank> digits;
  std::int64_t span = 1;
  for (; span < topology.world; span *= *arity) digits.push_back(*arity);
  if (*times == 1 && span == topology.world) groups.push_back(Group::grid(std::move(digits)));
  return groups;
}

}  // namespace

std::optional<Instance> folded(const Job& job) {
  const Rank world = job.schedule.world;
  const bool uneven =
      std::any_of(job.options.slowdown.begin(), job.options.slowdown.end(), [](double slower) { return slower != 1; });
  if (world < 2 || uneven || job.options.crash) return std::nullopt;
  std::vector<Group> groups;
  if (job.topology.switches > 1) {
    groups = groups_of_tree(job.topology);
    if (auto dims = grid_dims(job.topology); !dims.empty()) groups.push_back(Group::grid(std::move(dims)));
  } else {
    groups.push_back(Group::grid({world}));
    if (std::has_single_bit(static_cast<unsigned>(world))) groups.push_back(Group::exclusive_or(world));
    if (auto dims = grid_dims(job.topology); dims.size() > 1) groups.push_back(Group::grid(std::move(dims)));
    if (!job.options.grid.empty()) groups.push_back(Group::grid(job.options.grid));
  }
  if (job.symmetry != nullptr)
    if (const auto known = job.symmetry->find(job.cut); known != job.symmetry->end())
      return Folder(job, groups[known->second]).fold(true);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Folder folder(job, groups[i]);
    auto instance = folder.fold(false);
    if (!instance) continue;
    if (job.symmetry != nullptr && folder.rounds_are_alike()) job.symmetry->emplace(job.cut, i);
    return instance;
  }
  return std::nullopt;
}

}  // namespace ranvier::plan
