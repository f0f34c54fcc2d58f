// The shape of a hierarchical network as a topology: its dimensions of rings, full connections and switches, with a
// cable for each of theirs. Routed dimension after dimension, the innermost first (W. J. Dally, C. L. Seitz:
// Deadlock-free message routing in multiprocessor interconnection networks. IEEE Transactions on Computers C-36, 1987);
// ranks forward for others, as NPUs with links in several dimensions do.
#include <fmt/format.h>

#include <memory>

#include "ranvier/error.h"
#include "ranvier/network.h"
#include "ranvier/topology.h"

namespace ranvier {
namespace {

constexpr std::int64_t most_ranks = 1 << 20;  // as of other topologies
constexpr std::int64_t most_links = 1 << 24;

class Shape {
 public:
  explicit Shape(const NetworkShape& shape) {
    for (const auto& [block, size, tier] : shape.dimensions) {
      Dimension next{.block = block, .size = size, .stride = world_, .first_link = links_a_rank_};
      links_a_rank_ += out_of(next);
      world_ *= size;
      dimensions_.push_back(next);
    }
    std::int32_t switched = 0;
    for (Dimension& each : dimensions_) {
      if (each.block != Block::switched) continue;
      each.first_switch = world_ + switches_;
      each.first_down = std::int64_t{world_} * (links_a_rank_ + switched++);
      switches_ += world_ / each.size;
    }
  }

  Rank world() const { return world_; }
  std::int32_t switches() const { return switches_; }

  // Those out of rank 0, dimension by dimension, those out of rank 1, …, and behind them those down from the switches
  // of each dimension, in the order of the ranks to which they lead.
  std::vector<Link> lay_links(LinkSpeed speed) const {
    std::vector<Link> links;
    for (Rank rank = 0; rank < world_; ++rank)
      for (std::size_t d = 0; d < dimensions_.size(); ++d)
        for (Rank number = 0; number < out_of(dimensions_[d]); ++number)
          links.push_back({.from = rank,
                           .to = end_of(dimensions_[d], rank, number),
                           .speed = speed,
                           .dimension = static_cast<std::int32_t>(d)});
    for (std::size_t d = 0; d < dimensions_.size(); ++d)
      for (Rank rank = 0; dimensions_[d].block == Block::switched && rank < world_; ++rank)
        links.push_back({.from = switch_of(dimensions_[d], rank),
                         .to = rank,
                         .speed = speed,
                         .dimension = static_cast<std::int32_t>(d)});
    return links;
  }

  Path path(Rank from, Rank to) const {
    Path path;
    for (const Dimension& each : dimensions_) {
      const Rank there = place(each, to);
      while (place(each, from) != there) {
        const Rank number = way(each, place(each, from), there);
        path.push_back(static_cast<LinkNumber>(from * links_a_rank_ + each.first_link + number));
        if (each.block == Block::switched) {
          from += (there - place(each, from)) * each.stride;
          path.push_back(static_cast<LinkNumber>(each.first_down + from));
        } else {
          from = end_of(each, from, number);
        }
      }
    }
    return path;
  }

 private:
  struct Dimension {
    Block block = Block::ring;
    Rank size = 2;
    Rank stride = 1;      // how far apart neighbours are numbered
    Rank first_link = 0;  // of those out of a rank
    Vertex first_switch = 0;
    std::int64_t first_down = 0;  // of the links from its switches
  };

  static Rank out_of(const Dimension& dimension) {
    switch (dimension.block) {
      case Block::ring:
        return dimension.size > 2 ? 2 : 1;  // one cable joins both ends of two
      case Block::fully_connected:
        return dimension.size - 1;
      case Block::switched:
        return 1;
    }
    return 0;
  }

  static Rank place(const Dimension& dimension, Rank rank) { return rank / dimension.stride % dimension.size; }

  static Vertex switch_of(const Dimension& dimension, Rank rank) {
    const Rank around = dimension.stride * dimension.size;
    return dimension.first_switch + rank / around * dimension.stride + rank % dimension.stride;
  }

  // Which of its links in the dimension a rank takes towards a place: of a ring 0 up and 1 down, the shorter way
  // around, halfway as grids do; of full connection the one to the n-th place behind its own.
  static Rank way(const Dimension& dimension, Rank here, Rank there) {
    const Rank ahead = (there - here + dimension.size) % dimension.size, behind = dimension.size - ahead;
    switch (dimension.block) {
      case Block::ring:
        if (dimension.size == 2) return 0;
        if (ahead == behind) return here % 2;
        return ahead < behind ? 0 : 1;
      case Block::fully_connected:
        return ahead - 1;
      case Block::switched:
        return 0;
    }
    return 0;
  }

  static Vertex end_of(const Dimension& dimension, Rank rank, Rank number) {
    if (dimension.block == Block::switched) return switch_of(dimension, rank);
    const Rank here = place(dimension, rank);
    const Rank ahead = dimension.block == Block::ring && number == 1 ? dimension.size - 1 : number + 1;
    return rank + ((here + ahead) % dimension.size - here) * dimension.stride;
  }

  Rank world_ = 1;
  std::vector<Dimension> dimensions_;
  Rank links_a_rank_ = 0;
  std::int32_t switches_ = 0;
};

}  // namespace

Topology topology_of(const NetworkShape& shape, const LinkSpeed& speed) {
  std::int64_t links = 0;
  for (const auto& each : shape.dimensions) links += each.block == Block::fully_connected ? each.size - 1 : 2;
  links *= shape.npus();
  if (shape.npus() > most_ranks || links > most_links)
    throw Error(ErrorKind::usage,
                fmt::format("{} has {} ranks and up to {} links, which are more than {} or {}; take fewer ranks, or "
                            "smaller full connections",
                            to_string(shape), shape.npus(), links, most_ranks, most_links));
  const auto made = std::make_shared<Shape>(shape);
  return {.name = to_string(shape),
          .world = made->world(),
          .switches = made->switches(),
          .ranks_forward = true,
          .links = made->lay_links(speed),
          .path = [made](Rank from, Rank to) { return made->path(from, to); }};
}

}  // namespace ranvier
