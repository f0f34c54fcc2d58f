// Bine (binomial negabinary) trees: as many rounds and messages as a binomial tree has, over shorter distances. The
// root of a binomial tree stands at one end of its ranks and begins with a message over half of them; the root of a
// Bine tree stands a third of the way in, and its messages go to both sides by turns.
//
// D. De Sensi, S. Pasqualoni, L. Piarulli, T. Bonato, S. Ba, M. Turisini, J. Domke, T. Hoefler: Bine trees: Enhancing
// collective operations by optimizing communication locality. SC 2025: the distance-halving tree, in which the ranks
// below each child are consecutive. There, partners are 1, 1, 3, 5, 11, 21, … apart, seen from the leaves.
//
// Written without negabinary numbers, and for any world: the ranks of a subtree are cut in two nearly equal halves. The
// root keeps the half that it is in, and hands the other to one of its ranks; each stands as far from the cut as the
// root of its half does from an end. For powers of two these are the trees of the paper, which folds other worlds.
//
// Cost for n bytes (a rank's part, in gather and scatter) over p ranks, as for binomial_tree: ceil(log2 p) rounds;
// broadcast and reduce at most ceil(log2 p) n bytes at the root; gather and scatter (p-1) n at the root and a subtree
// at inner ranks, who also keep it in scratch; all_reduce a reduce and a broadcast.
#include "schedule/steps.h"
#include "schedule/tree.h"

namespace ranvier {
namespace {

// How many ranks stand between the root of a subtree of `ranks` and the nearer end.
Rank from_end(Rank ranks) {
  if (ranks == 1) return 0;
  const Rank kept = (ranks + 1) / 2;
  return kept - 1 - from_end(kept);
}

// Consecutive ranks whose root stands near their first one or, `mirrored`, near their last one; counted from the root
// of the whole tree.
struct Stretch {
  Rank first;
  Rank ranks;
  bool mirrored;

  Rank root() const { return mirrored ? first + ranks - 1 - from_end(ranks) : first + from_end(ranks); }
  bool holds(Rank rank) const { return rank >= first && rank < first + ranks; }
  // The larger half is the one that the root is in: it stands near the cut there.
  Rank kept() const { return (ranks + 1) / 2; }
  Stretch near_half() const {
    return mirrored ? Stretch{first + ranks - kept(), kept(), false} : Stretch{first, kept(), true};
  }
  Stretch far_half() const {
    return mirrored ? Stretch{first, ranks - kept(), true} : Stretch{first + kept(), ranks - kept(), false};
  }
};

tree::Node bine_node(Rank world, Rank rank, Rank root) {
  Stretch stretch{-from_end(world), world, false};
  Rank self = steps::around(rank - root, world);
  if (!stretch.holds(self)) self -= world;
  const auto absolute = [&](Rank from_root) { return steps::around(steps::around(from_root, world) + root, world); };

  tree::Node node;
  while ((Rank{1} << node.rounds) < world) ++node.rounds;
  for (std::uint32_t round = 0; stretch.ranks > 1; ++round) {
    const Rank holder = stretch.root();
    const Stretch far = stretch.far_half();
    const tree::Span below{absolute(far.first), far.ranks};
    if (self == holder) node.children.push_back({absolute(far.root()), round, below});
    if (self == far.root()) {
      node.parent = absolute(holder);
      node.round = round;
      node.subtree = below;
    }
    stretch = far.holds(self) ? far : stretch.near_half();
  }
  return node;
}

}  // namespace

Schedule bine_tree(Collective collective, Rank world, Rank root) {
  return tree::build("bine_tree", collective, world, root, &bine_node);
}

}  // namespace ranvier
