// How the transfers of a schedule share the links of a network.
//
// In a round all ranks send at once, so a link that k transfers cross gives each of them a k-th of its rate: contention
// is the number that a schedule's cost on a fully connected network leaves out. The sum over rounds of the busiest
// link's bytes is the bandwidth term of the usual analyses (for tori: D. De Sensi, T. Bonato, D. Saam, T. Hoefler:
// Swing: short-cutting rings for higher bandwidth allreduce. NSDI 2024).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ranvier/error.h"
#include "ranvier/topology.h"

namespace ranvier {
namespace {

struct Transfer {
  Rank from;
  Rank to;
  std::uint64_t chunks;
};

void check_same_world(const Schedule& schedule, const Topology& topology) {
  if (schedule.world != topology.world)
    throw Error(ErrorKind::usage,
                fmt::format("a schedule of {} ranks was put on topology {} of {} ranks; build both for one world",
                            schedule.world, topology.name, topology.world));
}

// By round; within a round by sender, then receiver, each pair once.
std::vector<std::vector<Transfer>> transfers_of(const Schedule& schedule) {
  std::vector<std::vector<Transfer>> rounds;
  for (Rank rank = 0; rank < schedule.world; ++rank)
    for (const Step& step : schedule.program(rank)) {
      if (step.action != Action::send) continue;
      if (rounds.size() <= step.round) rounds.resize(step.round + std::size_t{1});
      rounds[step.round].push_back({.from = rank, .to = step.peer, .chunks = step.chunks});
    }
  for (auto& transfers : rounds) {
    std::sort(transfers.begin(), transfers.end(),
              [](const Transfer& a, const Transfer& b) { return std::pair(a.from, a.to) < std::pair(b.from, b.to); });
    std::vector<Transfer> merged;
    for (const Transfer& transfer : transfers) {
      if (!merged.empty() && merged.back().from == transfer.from && merged.back().to == transfer.to)
        merged.back().chunks += transfer.chunks;
      else
        merged.push_back(transfer);
    }
    transfers = std::move(merged);
  }
  return rounds;
}

// What each link has to do, in chunks.
class Loads {
 public:
  explicit Loads(const Topology& topology) : topology_(topology), loads_(topology.links.size()) {}

  void add(const Path& path, std::uint64_t chunks) {
    for (const LinkNumber link : path) {
      if (loads_[link].transfers++ == 0) used_.push_back(link);
      loads_[link].chunks += chunks;
    }
  }

  std::uint32_t transfers(LinkNumber link) const { return loads_[link].transfers; }
  std::uint64_t chunks(LinkNumber link) const { return loads_[link].chunks; }
  // In the order of their numbers.
  const std::vector<LinkNumber>& used() {
    std::sort(used_.begin(), used_.end());
    return used_;
  }

  // The one that is busy longest, which on links of one speed is the one with most chunks; the first of several.
  LinkNumber busiest() {
    const auto& links = used();
    return *std::max_element(links.begin(), links.end(), [&](LinkNumber a, LinkNumber b) { return time(a) < time(b); });
  }

  void clear() {
    for (const LinkNumber link : used_) loads_[link] = {};
    used_.clear();
  }

 private:
  struct Load {
    std::uint32_t transfers = 0;
    std::uint64_t chunks = 0;
  };

  double time(LinkNumber link) const {
    return static_cast<double>(loads_[link].chunks) / topology_.links[link].speed.bytes_per_second;
  }

  const Topology& topology_;
  std::vector<Load> loads_;
  std::vector<LinkNumber> used_;
};

bool passes_a_rank(const Topology& topology, const Path& path) {
  const auto ends_at_a_rank = [&](LinkNumber link) { return topology.links[link].to < topology.world; };
  return std::count_if(path.begin(), path.end(), ends_at_a_rank) > 1;  // the last one does
}

}  // namespace

Contention contention(const Schedule& schedule, const Topology& topology) {
  check_same_world(schedule, topology);
  Contention result;
  Loads total(topology);
  Loads current(topology);
  std::uint64_t by_rounds = 0;
  std::uint64_t traffic = 0;
  const auto rounds = transfers_of(schedule);
  for (std::uint32_t round = 0; round < rounds.size(); ++round) {
    for (const Transfer& transfer : rounds[round]) {
      const Path path = topology.path(transfer.from, transfer.to);
      current.add(path, transfer.chunks);
      total.add(path, transfer.chunks);
      traffic += transfer.chunks * path.size();
    }
    if (current.used().empty()) continue;
    for (const LinkNumber link : current.used()) {
      if (current.transfers(link) <= result.most_transfers) continue;
      result.most_transfers = current.transfers(link);
      result.round = round;
      result.link = link;
    }
    by_rounds += current.chunks(current.busiest());
    current.clear();
  }
  if (total.used().empty()) return result;
  const double vector = schedule.chunks;
  result.busiest_link = total.busiest();
  result.busiest_load = static_cast<double>(total.chunks(result.busiest_link)) / vector;
  result.load_by_rounds = static_cast<double>(by_rounds) / vector;
  result.traffic = static_cast<double>(traffic) / vector;
  return result;
}

std::string missing_link(const Schedule& schedule, const Topology& topology) {
  check_same_world(schedule, topology);
  const auto rounds = transfers_of(schedule);
  for (std::size_t round = 0; round < rounds.size(); ++round)
    for (const Transfer& transfer : rounds[round]) {
      const Path path = topology.path(transfer.from, transfer.to);
      if (!passes_a_rank(topology, path)) continue;
      return fmt::format(
          "in round {} rank {} sends to rank {}, and topology {} has no link between them, only a way "
          "of {} links through {}",
          round, transfer.from, transfer.to, topology.name, path.size(),
          vertex_name(topology, topology.links[path.front()].to));
    }
  return {};
}

}  // namespace ranvier
