// The fat tree: switches whose cables upwards lead to as many different switches, so that the tree is as wide at its
// top as at its leaves, or narrower by the oversubscription at each level.
//
// It is the extended generalized fat tree XGFT(h; k, …, k; 1, u, …, u) of S. R. Öhring, M. Ibel, S. K. Das,
// M. J. Kumar: On generalized fat trees. IPPS (1995), with k the arity, u = k / oversubscription and h the levels that
// the world needs; with u = k the k-ary n-tree of F. Petrini, M. Vanneschi: k-ary n-trees: high performance networks
// for massively parallel architectures. IPPS (1997). A switch of level l (1 above the ranks) serves the k^l ranks of
// one subtree, beside u^(l-1) - 1 others that serve the same; of these, number b is joined above to those numbered b
// modulo u^(l-1). Where the world is no power of k the last subtree is smaller, and switches that would serve nobody
// are left out.
//
// Routing is d-mod-k, as in G. Rodriguez, C. Minkenberg, R. Beivide, R. P. Luijten, J. Labarta, M. Valero: Oblivious
// routing schemes in extended generalized fat tree networks. IEEE CLUSTER (2009): up to the lowest level whose switches
// serve both ranks, at each level by the switch numbered destination modulo u^(l-1), and from there the only way down.
// So the ways to different destinations part as early as they can, and those to one destination meet. Without
// oversubscription a link downwards serves one destination only, and where every rank sends to the one that is some
// fixed number of ranks ahead no link is shared at all, in a world that is a power of k.
#include <fmt/format.h>

#include <memory>

#include "ranvier/error.h"
#include "topology/world.h"

namespace ranvier::topology {
namespace {

struct Level {
  std::int64_t span;          // ranks that a switch of this level serves, at most
  std::int64_t alternatives;  // switches that serve the same ranks
  Vertex first_switch;
  LinkNumber first_up;  // the link upwards of that switch's first cable; the links of each cable stand side by side
};

class FatTree {
 public:
  FatTree(Rank world, std::int64_t arity, std::int64_t cables_up) : world_(world), cables_up_(cables_up) {
    const auto ranks_links = static_cast<LinkNumber>(2 * world);
    Level level{.span = arity, .alternatives = 1, .first_switch = world, .first_up = ranks_links};
    for (;;) {
      levels_.push_back(level);
      const std::int64_t switches = subtrees(level) * level.alternatives;
      level.first_switch += static_cast<Vertex>(switches);
      if (level.span >= world) break;
      level.first_up += static_cast<LinkNumber>(2 * switches * cables_up);
      level.span *= arity;
      level.alternatives *= cables_up;
    }
    end_of_switches_ = level.first_switch;
  }

  std::int32_t switches() const { return end_of_switches_ - world_; }

  std::vector<Link> links(LinkSpeed speed) const {
    std::vector<Link> links;
    for (Rank rank = 0; rank < world_; ++rank) add_cable(links, rank, switch_above(levels_[0], rank, 0), speed);
    for (std::size_t l = 0; l + 1 < levels_.size(); ++l)
      for (std::int64_t subtree = 0; subtree < subtrees(levels_[l]); ++subtree)
        for (std::int64_t number = 0; number < levels_[l].alternatives; ++number)
          for (std::int64_t cable = 0; cable < cables_up_; ++cable) {
            const auto rank = static_cast<Rank>(subtree * levels_[l].span);
            add_cable(links, switch_above(levels_[l], rank, number),
                      switch_above(levels_[l + 1], rank, number + cable * levels_[l].alternatives), speed,
                      static_cast<std::int32_t>(l + 1));
          }
    return links;
  }

  Path path(Rank from, Rank to) const {
    if (from == to) return {};
    std::size_t top = 0;
    while (from / levels_[top].span != to / levels_[top].span) ++top;
    Path path{static_cast<LinkNumber>(2 * from)};
    for (std::size_t l = 0; l < top; ++l) path.push_back(up(levels_[l], from, to));
    for (std::size_t l = top; l-- > 0;) path.push_back(up(levels_[l], to, to) + 1);  // the same cable, downwards
    path.push_back(static_cast<LinkNumber>(2 * to + 1));
    return path;
  }

 private:
  std::int64_t subtrees(const Level& level) const { return (world_ + level.span - 1) / level.span; }

  Vertex switch_above(const Level& level, Rank rank, std::int64_t number) const {
    return level.first_switch + static_cast<Vertex>(rank / level.span * level.alternatives + number);
  }

  // From the switch of this level that serves `rank` and is the one for destination `to`, to the next level's.
  LinkNumber up(const Level& level, Rank rank, Rank to) const {
    const std::int64_t switch_number = switch_above(level, rank, to % level.alternatives) - level.first_switch;
    const std::int64_t cable = to / level.alternatives % cables_up_;
    return level.first_up + static_cast<LinkNumber>(2 * (switch_number * cables_up_ + cable));
  }

  Rank world_;
  std::int64_t cables_up_;
  std::vector<Level> levels_;  // from the ranks upwards
  Vertex end_of_switches_ = 0;
};

}  // namespace

Topology fat_tree(Rank world, std::int32_t arity, std::int32_t oversubscription, LinkSpeed speed) {
  std::string name = fmt::format("fat_tree:{}", arity);
  if (oversubscription != 1) name += fmt::format(",oversubscription={}", oversubscription);
  check_world(name, world);
  if (arity < 2)
    throw Error(ErrorKind::usage, fmt::format("topology {} has too few cables down a switch; name at least 2", name));
  if (oversubscription < 1 || arity % oversubscription != 0)
    throw Error(ErrorKind::usage,
                fmt::format("topology {} cannot have {}/{} cables up a switch; choose an oversubscription that divides "
                            "the arity",
                            name, arity, oversubscription));
  auto tree = std::make_shared<const FatTree>(world, arity, arity / oversubscription);
  return {.name = name,
          .world = world,
          .switches = tree->switches(),
          .links = tree->links(speed),
          .path = [tree](Rank from, Rank to) { return tree->path(from, to); }};
}

}  // namespace ranvier::topology
