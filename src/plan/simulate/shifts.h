// Which ranks of a world may do the same: shifts, what they make of ranks and links, and which ones are worth trying.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/simulate/instance.h"

namespace ranvier::plan {

// Beyond so many kinds of ranks, or messages of all of them, nothing is gained that is worth the looking.
inline constexpr Rank most_kinds = 2048;
inline constexpr std::size_t most_messages = 1 << 22;

// Shifts by multiples of `steps` along the dimensions of a grid whose last dimension counts fastest.
class Group {
 public:
  explicit Group(const Shifts& shifts) : dims_(shifts.dims), steps_(shifts.steps), strides_(dims_.size()) {
    Rank stride = 1;
    for (std::size_t i = dims_.size(); i-- > 0; stride *= dims_[i]) {
      strides_[i] = stride;
      kinds_ *= steps_[i];
      shifts_ *= dims_[i] / steps_[i];
    }
  }

  Rank kinds() const { return kinds_; }
  // Ranks of a kind, which are as many as shifts.
  Rank shifts() const { return shifts_; }

  // The element that takes a to b.
  Rank difference(Rank a, Rank b) const {
    Rank result = 0;
    for (std::size_t i = 0; i < dims_.size(); ++i)
      result += (place(b, i) - place(a, i) + dims_[i]) % dims_[i] * strides_[i];
    return result;
  }

  // What `difference` takes a rank to.
  Rank moved(Rank rank, Rank difference) const {
    Rank result = 0;
    for (std::size_t i = 0; i < dims_.size(); ++i)
      result += (place(rank, i) + place(difference, i)) % dims_[i] * strides_[i];
    return result;
  }

  Rank kind_of(Rank rank) const {
    if (kinds_ == 1) return 0;
    Rank kind = 0;
    for (std::size_t i = 0; i < dims_.size(); ++i) kind = kind * steps_[i] + place(rank, i) % steps_[i];
    return kind;
  }

  // Of a kind the first rank, and those that the other shifts make of it.
  Rank rank_of(Rank kind, Rank shift) const {
    Rank rank = 0;
    for (std::size_t i = dims_.size(); i-- > 0;) {
      const Rank times = dims_[i] / steps_[i];
      rank += (kind % steps_[i] + shift % times * steps_[i]) * strides_[i];
      kind /= steps_[i];
      shift /= times;
    }
    return rank;
  }

 private:
  Rank place(Rank rank, std::size_t i) const { return rank / strides_[i] % dims_[i]; }

  std::vector<Rank> dims_, steps_, strides_;
  Rank kinds_ = 1;
  Rank shifts_ = 1;
};

// A link by what shifting leaves of it: which of its ends are ranks, the kind of the first that is, and the difference
// of its ends. Switches stay in their dimension, those of a tree on their level, and up remains up.
using LinkKind = std::tuple<bool, bool, Rank, Rank>;

inline LinkKind kind_of(const Group& group, const Topology& topology, LinkNumber number) {
  const Link& link = topology.links[number];
  const bool from_rank = link.from < topology.world;
  const bool to_rank = link.to < topology.world;
  if (!from_rank && !to_rank) return {false, false, 0, link.from < link.to ? link.dimension : -link.dimension};
  return {from_rank, to_rank, group.kind_of(from_rank ? link.from : link.to),
          from_rank && to_rank ? group.difference(link.from, link.to) : link.dimension};
}

// By link: which one, among those of a folded world, stands for it.
std::vector<std::uint32_t> link_kinds(const Group&, const Topology&);

// What its steps do with how many chunks each, and by whom it shifts to where all chunks have elements: of ranks that
// are alike the same, and told sooner than their programs.
std::uint64_t outline_of(const Job&, const Group&, Rank);
// Of its first steps only, which most ranks that are not alike already differ in.
std::uint64_t beginning_of(const Job&, const Group&, Rank);

// What a rank does, by whom it shifts to.
struct Doing {
  Program program;
  std::vector<Rank> keys;  // by instruction: which shift takes the rank to its receiver, or its sender to it

  Doing(const Job& job, const Group& group, Rank rank) : program(program_of(job, rank)) {
    keys.reserve(program.sends.size() + program.receives.size());
    for (const Instruction& each : program.sends) keys.push_back(group.difference(rank, each.peer));
    for (const Instruction& each : program.receives)
      keys.push_back(each.peer < 0 ? -1 : group.difference(each.peer, rank));
  }

  bool is_like(const Doing& other) const {
    return keys == other.keys && alike(program.sends, other.program.sends) &&
           alike(program.receives, other.program.receives);
  }
  // Rounds say which pieces come first at other lengths.
  bool has_rounds_of(const Doing& other) const {
    return std::ranges::equal(program.sends, other.program.sends, {}, &Instruction::round, &Instruction::round) &&
           std::ranges::equal(program.receives, other.program.receives, {}, &Instruction::round, &Instruction::round);
  }

 private:
  static bool alike(const std::vector<Instruction>& a, const std::vector<Instruction>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Instruction& one, const Instruction& other) {
      return one.action == other.action && one.bytes == other.bytes && one.after == other.after;
    });
  }
};

// The grids along which a schedule on a topology may be shifted, the likeliest first.
std::vector<std::vector<Rank>> grids_of(const Job&);

// What a rank sees of its network: the cables that leave it, and the ways of its messages.
class Sights {
 public:
  explicit Sights(const Topology& topology) : topology_(topology), from_(static_cast<std::size_t>(topology.world)) {
    for (LinkNumber link = 0; link < topology.links.size(); ++link)
      if (const Vertex from = topology.links[link].from; from < topology.world)
        from_[static_cast<std::size_t>(from)].push_back(link);
  }

  using Sight = std::vector<std::pair<Rank, LinkKind>>;
  Sight of(Rank rank, const Doing& doing, const Group& group) const {
    Sight sight;
    for (const LinkNumber link : from_[static_cast<std::size_t>(rank)])
      sight.emplace_back(-1, kind_of(group, topology_, link));
    std::map<Rank, Rank> peers;
    for (const Instruction& each : doing.program.sends) {
      peers.emplace(group.difference(rank, each.peer), each.peer);
      if (peers.size() == most_peers) break;
    }
    for (const auto& [by, peer] : peers)
      for (const LinkNumber link : topology_.path(rank, peer)) sight.emplace_back(by, kind_of(group, topology_, link));
    std::ranges::sort(sight);
    return sight;
  }

 private:
  static constexpr std::size_t most_peers = 64;

  const Topology& topology_;
  std::vector<std::vector<LinkNumber>> from_;
};

// The shifts along each dimension by itself, by `least` places at least, that leave the programs and sights of `ranks`
// as they are; none if those are too few. `is_too_much` becomes true where shorter programs would have been looked at
// further.
std::optional<Shifts> shifts_of(const Job& job, const Sights& sights, const std::vector<Rank>& dims, Rank least,
                                const std::vector<Rank>& ranks, bool& is_too_much);

}  // namespace ranvier::plan
