// Rings, meshes and tori: ranks joined to their neighbours in each dimension, routed dimension after dimension.
//
// Dimension-order routing: W. J. Dally, C. L. Seitz: Deadlock-free message routing in multiprocessor interconnection
// networks. IEEE Transactions on Computers C-36 (1987). A line of n ranks has n-1 cables, closed to a ring n; a line of
// two is not closed, since its one cable already joins both ends.
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "topology/world.h"

namespace ranvier::topology {
namespace {

constexpr LinkNumber no_link = std::numeric_limits<LinkNumber>::max();

// One step in one dimension.
enum Direction : std::size_t { up, down };

class Grid {
 public:
  Grid(const std::vector<Rank>& dims, bool closed) : dims_(dims), strides_(dims.size(), 1), closed_(closed) {
    for (std::size_t dim = dims.size() - 1; dim > 0; --dim) strides_[dim - 1] = strides_[dim] * dims[dim];
  }

  std::vector<Link> lay_links(LinkSpeed speed) {
    const Rank world = strides_[0] * dims_[0];
    std::vector<Link> links;
    links_from_.assign(static_cast<std::size_t>(world) * dims_.size() * 2, no_link);
    for (Rank rank = 0; rank < world; ++rank)
      for (std::size_t dim = 0; dim < dims_.size(); ++dim)
        for (const Direction direction : {up, down}) {
          if (!has_neighbour(rank, dim, direction)) continue;
          link_from(rank, dim, direction) = static_cast<LinkNumber>(links.size());
          links.push_back({.from = rank,
                           .to = neighbour(rank, dim, direction),
                           .speed = speed,
                           .dimension = static_cast<std::int32_t>(dim)});
        }
    return links;
  }

  Path path(Rank from, Rank to) const {
    Path path;
    for (std::size_t dim = dims_.size(); dim-- > 0;) {
      const Direction direction = way(place(from, dim), place(to, dim), dim);
      while (place(from, dim) != place(to, dim)) {
        path.push_back(links_from_[index(from, dim, direction)]);
        from = neighbour(from, dim, direction);
      }
    }
    return path;
  }

 private:
  Rank place(Rank rank, std::size_t dim) const { return rank / strides_[dim] % dims_[dim]; }
  bool is_closed(std::size_t dim) const { return closed_ && dims_[dim] > 2; }

  bool has_neighbour(Rank rank, std::size_t dim, Direction direction) const {
    return is_closed(dim) || place(rank, dim) != (direction == up ? dims_[dim] - 1 : 0);
  }

  Rank neighbour(Rank rank, std::size_t dim, Direction direction) const {
    const Rank here = place(rank, dim);
    const Rank size = dims_[dim];
    const Rank there = direction == up ? (here + 1) % size : (here + size - 1) % size;
    return rank + (there - here) * strides_[dim];
  }

  Direction way(Rank here, Rank there, std::size_t dim) const {
    if (!is_closed(dim)) return there > here ? up : down;
    const Rank ahead = there >= here ? there - here : there - here + dims_[dim];
    const Rank behind = dims_[dim] - ahead;
    if (ahead == behind) return here % 2 == 0 ? up : down;
    return ahead < behind ? up : down;
  }

  std::size_t index(Rank rank, std::size_t dim, Direction direction) const {
    return (static_cast<std::size_t>(rank) * dims_.size() + dim) * 2 + direction;
  }
  LinkNumber& link_from(Rank rank, std::size_t dim, Direction direction) {
    return links_from_[index(rank, dim, direction)];
  }

  std::vector<Rank> dims_;
  std::vector<Rank> strides_;  // how far apart neighbours in a dimension are numbered
  bool closed_;
  std::vector<LinkNumber> links_from_;  // by rank, dimension and direction
};

Topology build(std::string_view name, const std::vector<Rank>& dims, bool closed, LinkSpeed speed) {
  std::int64_t world = dims.empty() ? 0 : 1;
  for (const Rank size : dims) {
    check_world(name, size);
    world *= size;
    check_world(name, world);
  }
  check_world(name, world);
  auto grid = std::make_shared<Grid>(dims, closed);
  return {.name = std::string(name),
          .world = static_cast<Rank>(world),
          .switches = 0,
          .ranks_forward = true,
          .links = grid->lay_links(speed),
          .path = [grid](Rank from, Rank to) { return grid->path(from, to); }};
}

}  // namespace

Topology ring(Rank world, LinkSpeed speed) { return build("ring", {world}, true, speed); }

Topology mesh(const std::vector<Rank>& dims, LinkSpeed speed) {
  return build(fmt::format("mesh:{}", fmt::join(dims, "x")), dims, false, speed);
}

Topology torus(const std::vector<Rank>& dims, LinkSpeed speed) {
  return build(fmt::format("torus:{}", fmt::join(dims, "x")), dims, true, speed);
}

}  // namespace ranvier::topology
