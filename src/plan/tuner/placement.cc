// Which rank stands where.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "ranvier/error.h"
#include "ranvier/plan.h"

namespace ranvier {
namespace {

constexpr Rank most_ordered_ranks = 256;
constexpr double least_shortening = 1e-9;

class Order {
 public:
  Order(const Topology& topology, double bytes) : world_(static_cast<std::size_t>(topology.world)) {
    ns_.resize(world_ * world_);
    for (Rank from = 0; from < topology.world; ++from)
      for (Rank to = 0; to < topology.world; ++to) {
        if (from == to) continue;
        double slowest = std::numeric_limits<double>::infinity();
        double latency_ns = 0;
        for (const LinkNumber link : topology.path(from, to)) {
          const LinkSpeed& speed = topology.links[link].speed;
          slowest = std::min(slowest, speed.bytes_per_second);
          latency_ns += static_cast<double>(speed.latency.count());
        }
        ns(from, to) = latency_ns + bytes / slowest * 1e9;
      }
    ranks_.resize(world_);
    std::iota(ranks_.begin(), ranks_.end(), 0);
  }

  // What a ring of one slice at a time waits for, and then what all of its links take together.
  struct Length {
    double longest = 0;
    double all = 0;
    bool operator<(const Length& other) const {
      if (longest < other.longest * (1 - least_shortening)) return true;
      if (longest > other.longest * (1 + least_shortening)) return false;
      return all < other.all * (1 - least_shortening);
    }
  };
  Length length() const {
    Length result;
    for (std::size_t i = 0; i < world_; ++i) {
      const double one = ns_[index(ranks_[i], ranks_[(i + 1) % world_])];
      result.longest = std::max(result.longest, one);
      result.all += one;
    }
    return result;
  }

  void nearest_first() {
    for (std::size_t at = 1; at < world_; ++at) {
      const auto next = ranks_.begin() + static_cast<std::ptrdiff_t>(at);
      const auto nearest = std::min_element(next, ranks_.end(), [&](Rank a, Rank b) {
        return ns_[index(ranks_[at - 1], a)] < ns_[index(ranks_[at - 1], b)];
      });
      std::rotate(next, nearest, nearest + 1);
    }
  }

  // Until no piece gains by being turned around; each pass is of cubic time, so that few are made of large worlds.
  void turn_pieces() {
    Length best = length();
    const int passes = world_ <= 64 ? 20 : 1;
    bool gained = true;
    for (int pass = 0; pass < passes && gained; ++pass) {
      gained = false;
      for (std::size_t first = 1; first + 1 < world_; ++first)
        for (std::size_t last = first + 1; last < world_; ++last) {
          const auto begin = ranks_.begin() + static_cast<std::ptrdiff_t>(first);
          const auto end = ranks_.begin() + static_cast<std::ptrdiff_t>(last) + 1;
          std::reverse(begin, end);
          if (const Length now = length(); now < best) {
            best = now;
            gained = true;
          } else {
            std::reverse(begin, end);
          }
        }
    }
  }

  const std::vector<Rank>& ranks() const { return ranks_; }

 private:
  std::size_t index(Rank from, Rank to) const {
    return static_cast<std::size_t>(from) * world_ + static_cast<std::size_t>(to);
  }
  double& ns(Rank from, Rank to) { return ns_[index(from, to)]; }

  std::size_t world_;
  std::vector<double> ns_;
  std::vector<Rank> ranks_;
};

}  // namespace

Topology with_placement(const Topology& topology, const std::vector<Rank>& placement) {
  const auto world = static_cast<std::size_t>(topology.world);
  std::vector<Rank> rank_at(world, -1);
  for (std::size_t rank = 0; rank < placement.size(); ++rank)
    if (const Rank place = placement[rank]; place >= 0 && static_cast<std::size_t>(place) < world)
      rank_at[static_cast<std::size_t>(place)] = static_cast<Rank>(rank);
  if (placement.size() != world || std::ranges::count(rank_at, -1) > 0)
    throw Error(ErrorKind::usage,
                fmt::format("a placement names each of the {} places once, and this one has {} numbers", world,
                            placement.size()));
  Topology placed = topology;
  for (Link& link : placed.links)
    for (Vertex* end : {&link.from, &link.to})
      if (*end < topology.world) *end = rank_at[static_cast<std::size_t>(*end)];
  placed.path = [path = topology.path, placement](Rank from, Rank to) {
    return path(placement[static_cast<std::size_t>(from)], placement[static_cast<std::size_t>(to)]);
  };
  return placed;
}

std::optional<std::vector<Rank>> near_placement(const Topology& topology, double bytes) {
  if (topology.world < 3 || topology.world > most_ordered_ranks) return std::nullopt;
  const Order as_it_is(topology, bytes);
  Order improved = as_it_is;
  improved.turn_pieces();
  Order nearest = as_it_is;
  nearest.nearest_first();
  nearest.turn_pieces();
  const Order& best = nearest.length() < improved.length() ? nearest : improved;
  if (!(best.length() < as_it_is.length())) return std::nullopt;
  return best.ranks();
}

}  // namespace ranvier
