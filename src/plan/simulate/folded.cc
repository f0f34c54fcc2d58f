// A world in which many ranks do the same, as one rank for each kind. Ranks are the elements of a group that acts on
// itself by shifting: numbers modulo the world, or the coordinates of a grid, of which one with two places along each
// dimension is exclusive or on bits. If the programs of all ranks that some of these shifts carry into each other are
// alike but for the shift, and so are all routes, then at every moment each stands where the first of them stands: what
// it sends to the rank that is d away arrives there when the same message of the rank -d away arrives at itself. Where
// all shifts do, one rank stands for all. Links that shifts carry into each other become one, which a flow crosses as
// often as its path crosses any of them; where there are fewer than ranks, as between the switches of a tree, as much
// more often as ranks share each.
#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "plan/simulate/shifts.h"

namespace ranvier::plan {
namespace {

constexpr Rank most_proven = 256;

class Folder {
 public:
  Folder(const Job& job, const Shifts& shifts) : job_(job), shifts_(shifts), group_(shifts) {}

  // `proven`: that shifts leave everything as it is.
  std::optional<Instance> fold(bool proven) {
    if (!proven && !may_be_alike()) return std::nullopt;
    if (!is_invariant()) return std::nullopt;
    for (Rank kind = 0; kind < group_.kinds(); ++kind) {
      firsts_.push_back(doing_of(group_.rank_of(kind, 0)));
      // All have about as many.
      const std::size_t messages = firsts_.front().program.sends.size() * static_cast<std::size_t>(group_.kinds());
      is_too_much_ = !proven && group_.kinds() > 1 && messages > job_.most_folded;
      if (is_too_much_) return std::nullopt;
    }
    if (!proven && !are_alike()) return std::nullopt;
    return build();
  }

  // Whether it was proven for all lengths whose chunks are cut like this one's.
  bool rounds_are_alike() const { return rounds_are_alike_; }
  // Two ranks that do not do the same, if that was the reason.
  const std::vector<Rank>& unlike() const { return unlike_; }
  // Whether it was not found out because of this length.
  bool is_too_much() const { return is_too_much_; }

 private:
  using Route = std::vector<std::pair<LinkKind, double>>;

  // Of the first kind two ranks, which is looked at in no time.
  bool may_be_alike() {
    const Rank last = group_.rank_of(0, group_.shifts() - 1);
    if (last == 0) return true;
    if (beginning_of(job_, group_, last) == beginning_of(job_, group_, 0) &&
        outline_of(job_, group_, last) == outline_of(job_, group_, 0)) {
      made_.emplace(last, Doing(job_, group_, last));
      made_.emplace(0, Doing(job_, group_, 0));
      if (made_.at(last).is_like(made_.at(0))) return true;
    }
    unlike_ = {0, last};
    return false;
  }

  // Made once.
  Doing doing_of(Rank rank) {
    auto made = made_.extract(rank);
    return made ? std::move(made.mapped()) : Doing(job_, group_, rank);
  }

  bool are_alike() {
    for (Rank kind = 0; kind < group_.kinds(); ++kind) {
      const Doing& first = firsts_[static_cast<std::size_t>(kind)];
      const Rank first_rank = group_.rank_of(kind, 0);
      const auto peers = peers_of(first, first_rank);
      std::map<Rank, Route> routes;
      for (const auto& [by, peer] : peers) routes.emplace(by, route(first_rank, peer));
      for (const Rank shift : sample(kind)) {
        const Rank rank = group_.rank_of(kind, shift);
        const Doing other = doing_of(rank);
        if (!other.is_like(first)) {
          unlike_ = {first_rank, rank};
          return false;
        }
        rounds_are_alike_ &= other.has_rounds_of(first);
        for (const auto& [by, peer] : peers_of(other, rank))
          if (route(rank, peer) != routes.at(by)) return false;
      }
      for (const auto& [by, peer] : peers)
        if (!are_even(kind, by, peers.size())) return false;
    }
    return true;
  }

  // Whether shifts carry links to links as fast. Shifting moves every rank, so that a kind of link that is there for
  // one rank must be there once for each.
  bool is_invariant() {
    if (!have_as_many_links()) return false;
    for (LinkNumber number = 0; number < job_.topology.links.size(); ++number) {
      const LinkKind kind = kind_of(group_, job_.topology, number);
      joins_switches_ |= is_between_switches(number);
      // Links lie in an order: one of the last kinds is likely it.
      auto recent = std::ranges::find(recent_, kind, &Recent::kind);
      if (recent == recent_.end()) {
        constexpr std::size_t most_recent = 16;
        if (recent_.size() < most_recent)
          recent = recent_.emplace(recent_.end());
        else
          recent = recent_.begin() + static_cast<std::ptrdiff_t>(number % most_recent);
        *recent = {kind, &count_[kind], kinds_.try_emplace(kind, number).first->second};
      }
      ++*recent->count;
      const Link& known = job_.topology.links[recent->first];
      const LinkSpeed& one = known.speed;
      const LinkSpeed& other = job_.topology.links[number].speed;
      if (known.dimension != job_.topology.links[number].dimension) return false;
      if (one.bytes_per_second != other.bytes_per_second || one.latency != other.latency ||
          one.burst_bytes != other.burst_bytes)
        return false;
    }
    return std::all_of(count_.begin(), count_.end(), [&](const auto& kind) {
      const bool of_ranks = std::get<0>(kind.first) || std::get<1>(kind.first);
      return of_ranks ? kind.second == group_.shifts() : group_.shifts() % kind.second == 0;
    });
  }

  // Ranks of a kind, which is soon seen: in meshes they have not.
  bool have_as_many_links() const {
    std::vector<std::uint32_t> links(static_cast<std::size_t>(job_.topology.world));
    for (const Link& link : job_.topology.links)
      if (link.from < job_.topology.world) ++links[static_cast<std::size_t>(link.from)];
    std::vector<std::uint32_t> of_kind;
    for (Rank kind = 0; kind < group_.kinds(); ++kind)
      of_kind.push_back(links[static_cast<std::size_t>(group_.rank_of(kind, 0))]);
    for (Rank rank = 0; rank < job_.topology.world; ++rank)
      if (links[static_cast<std::size_t>(rank)] != of_kind[static_cast<std::size_t>(group_.kind_of(rank))])
        return false;
    return true;
  }

  // Whether the messages of all ranks of a kind by one shift cross all links of each kind equally often. Those of ranks
  // they do; those between switches are looked at in small worlds, and where ranks of a kind are not all.
  bool are_even(Rank kind, Rank by, std::size_t of_shifts) const {
    if (!joins_switches_ || (group_.kinds() == 1 && job_.schedule.world > most_proven)) return true;
    if (of_shifts * static_cast<std::size_t>(job_.schedule.world) > most_messages) return false;
    std::vector<std::uint32_t> times(job_.topology.links.size());
    for (Rank shift = 0; shift < group_.shifts(); ++shift) {
      const Rank rank = group_.rank_of(kind, shift);
      for (const LinkNumber link : job_.topology.path(rank, group_.moved(rank, by))) ++times[link];
    }
    for (LinkNumber link = 0; link < times.size(); ++link)
      if (is_between_switches(link) && times[link] != times[kinds_.at(kind_of(group_, job_.topology, link))])
        return false;
    return true;
  }

  bool is_between_switches(LinkNumber number) const {
    const Link& link = job_.topology.links[number];
    return link.from >= job_.topology.world && link.to >= job_.topology.world;
  }

  // Of a kind the shifts of its first rank whose programs are looked at.
  std::vector<Rank> sample(Rank kind) const {
    const Rank shifts = group_.shifts();
    std::vector<Rank> some;
    if (job_.schedule.world <= most_proven) {
      some.resize(static_cast<std::size_t>(shifts));
      std::iota(some.begin(), some.end(), 0);
    } else if (group_.kinds() == 1) {
      some = {1, shifts / 3, shifts / 2, shifts - 1};
    } else {
      some = {(kind * 7 + 1) % shifts};
    }
    std::erase(some, 0);
    return some;
  }

  Route route(Rank from, Rank to) const {
    Route kinds;
    for (const auto& [link, part] : way(job_.topology, from, to))
      kinds.emplace_back(kind_of(group_, job_.topology, link), part);
    std::sort(kinds.begin(), kinds.end());
    return kinds;
  }

  // By shift: the rank that `rank` sends to.
  std::map<Rank, Rank> peers_of(const Doing& doing, Rank rank) const {
    std::map<Rank, Rank> peers;
    for (const Instruction& each : doing.program.sends) peers.emplace(group_.difference(rank, each.peer), each.peer);
    return peers;
  }

  Instance build() {
    Instance instance;
    instance.folded_by = shifts_;
    std::map<LinkKind, std::uint32_t> numbers;
    for (const auto& [kind, link] : kinds_) {
      numbers.emplace(kind, static_cast<std::uint32_t>(instance.links.size()));
      const Link& each = job_.topology.links[link];
      instance.links.push_back({.speed = {each.speed.bytes_per_second / 1e9, each.speed.burst_bytes},
                                .from = vertex_name(job_.topology, each.from),
                                .to = vertex_name(job_.topology, each.to),
                                .dimension = each.dimension});
    }
    std::map<std::pair<Rank, Rank>, std::uint32_t> channels;  // by kind of the sender and shift
    for (Rank kind = 0; kind < group_.kinds(); ++kind) {
      const Rank from = group_.rank_of(kind, 0);
      std::vector<std::uint32_t> sends;
      for (const Instruction& each : firsts_[static_cast<std::size_t>(kind)].program.sends) {
        const auto [found, added] = channels.try_emplace({kind, group_.difference(from, each.peer)},
                                                         static_cast<std::uint32_t>(channels.size()));
        if (added) instance.channels.push_back(channel(from, each.peer, numbers));
        sends.push_back(found->second);
      }
      instance.send_channels.push_back(std::move(sends));
    }
    for (Rank kind = 0; kind < group_.kinds(); ++kind) {
      const Rank to = group_.rank_of(kind, 0);
      Program& program = firsts_[static_cast<std::size_t>(kind)].program;
      std::vector<std::uint32_t> receives;
      receives.reserve(program.receives.size());
      for (const Instruction& each : program.receives)
        receives.push_back(each.peer < 0 ? 0
                                         : channels.at({group_.kind_of(each.peer), group_.difference(each.peer, to)}));
      instance.receive_channels.push_back(std::move(receives));
      instance.programs.push_back(std::move(program));
      instance.slowdown.push_back(1);
      instance.starts_ns.push_back(0);
    }
    return instance;
  }

  Instance::Channel channel(Rank from, Rank to, const std::map<LinkKind, std::uint32_t>& numbers) const {
    Instance::Channel made{.route = {}, .from = from, .to = to};
    std::map<std::uint32_t, double> crossings;
    for (const auto& [link, part] : way(job_.topology, from, to)) {
      const LinkKind kind = kind_of(group_, job_.topology, link);
      crossings[numbers.at(kind)] += part * static_cast<double>(group_.shifts()) / count_.at(kind);
      made.latency_ns += static_cast<double>(job_.topology.links[link].speed.latency.count());
    }
    for (const auto& [link, times] : crossings) made.route.push_back({link, times});
    return made;
  }

  const Job& job_;
  const Shifts shifts_;
  const Group group_;
  std::vector<Doing> firsts_;  // by kind
  struct Recent {
    LinkKind kind = {};
    Rank* count = nullptr;
    LinkNumber first = 0;
  };
  std::vector<Recent> recent_;
  std::map<LinkKind, LinkNumber> kinds_;
  std::map<LinkKind, Rank> count_;
  bool rounds_are_alike_ = true;
  bool joins_switches_ = false;
  bool is_too_much_ = false;
  std::vector<Rank> unlike_;
  std::map<Rank, Doing> made_;  // and not asked for yet
};

// The shifts along one grid that leave all as it is, and what they make of the world.
class Search {
 public:
  explicit Search(const Job& job) : job_(job) {}

  std::optional<Instance> by(const Shifts& shifts) {
    Folder folder(job_, shifts);
    auto instance = folder.fold(false);
    if (instance && job_.symmetry != nullptr && folder.rounds_are_alike()) job_.symmetry->emplace(job_.cut, shifts);
    is_too_much_ |= folder.is_too_much();
    looked_at_.insert(looked_at_.end(), folder.unlike().begin(), folder.unlike().end());
    return instance;
  }

  // Fewer shifts, again and again, as ranks are found that others do not leave as they are; along one dimension also
  // since larger steps may keep to a network where smaller ones do not.
  std::optional<Instance> by_some(const std::vector<Rank>& dims) {
    if (!sights_) sights_.emplace(job_.topology);
    const bool is_line = dims.size() == 1;
    Rank least = is_line ? 2 : 1;
    looked_at_ = {0, job_.schedule.world / 3, job_.schedule.world - 1};
    for (std::size_t tries = 0; tries < most_tries; ++tries) {
      const std::size_t before = looked_at_.size();
      const auto some = shifts_of(job_, *sights_, dims, least, looked_at_, is_too_much_);
      if (!some) return std::nullopt;
      if (std::ranges::any_of(some->steps, [](Rank step) { return step > 1; }))
        if (auto instance = by(*some)) return instance;
      if (is_line)
        least = some->steps.front() + 1;
      else if (looked_at_.size() == before)
        return std::nullopt;
    }
    return std::nullopt;
  }

  bool is_too_much() const { return is_too_much_; }

 private:
  static constexpr std::size_t most_tries = 16;

  const Job& job_;
  std::optional<Sights> sights_;
  std::vector<Rank> looked_at_;  // ranks
  bool is_too_much_ = false;
};

}  // namespace

std::optional<Instance> folded(const Job& job) {
  const Rank world = job.schedule.world;
  const bool uneven =
      std::any_of(job.options.slowdown.begin(), job.options.slowdown.end(), [](double slower) { return slower != 1; });
  if (world < 2 || uneven || job.options.crash || messages_of_rank(job, 0) > most_messages) return std::nullopt;
  if (job.symmetry != nullptr)
    if (const auto known = job.symmetry->find(job.cut); known != job.symmetry->end())
      return known->second ? Folder(job, *known->second).fold(true) : std::nullopt;
  Search search(job);
  const auto grids = grids_of(job);
  for (const auto& dims : grids)
    if (auto instance = search.by({dims, std::vector<Rank>(dims.size(), 1)})) return instance;
  // Of programs that repeat themselves for so long the beginning is enough (by_first_rounds), and found sooner.
  if (repeated_rounds(job) == 0)
    for (const auto& dims : grids)
      if (auto instance = search.by_some(dims)) return instance;
  if (job.symmetry != nullptr && !search.is_too_much()) job.symmetry->emplace(job.cut, std::nullopt);
  return std::nullopt;
}

}  // namespace ranvier::plan
