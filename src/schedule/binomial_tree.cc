// Binomial trees: the root halves its work with each round, and so does everybody who has joined.
//
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH. Int. J. High
// Performance Computing Applications 19 (2005), sections 4.2 to 4.6. Ranks count from the root: rank v is a child of v
// without its lowest bit, and the tree of v holds the ranks from v to v + that bit.
//
// Cost for n bytes (a rank's part, in gather and scatter) over p ranks: ceil(log2 p) rounds. broadcast and reduce: the
// root sends or receives at most ceil(log2 p) n bytes, every other rank less; gather and scatter: the root (p-1) n, the
// least there is, an inner rank its subtree. all_reduce is a reduce and a broadcast: 2 ceil(log2 p) rounds.
// Inner ranks reduce in scratch (n bytes; all_reduce in its output), and gather and scatter their subtree there.
#include <algorithm>

#include "schedule/steps.h"
#include "schedule/tree.h"

namespace ranvier {

tree::Node tree::binomial_node(Rank world, Rank rank, Rank root) {
  const auto absolute = [&](Rank from_root) { return steps::around(from_root + root, world); };
  const Rank self = steps::around(rank - root, world);
  const auto subtree = [&](Rank from_root, Rank distance) {
    return tree::Span{absolute(from_root), std::min(distance, world - from_root)};
  };

  tree::Node node;
  while ((Rank{1} << node.rounds) < world) ++node.rounds;
  for (std::uint32_t round = 0; round < node.rounds; ++round) {
    const Rank distance = Rank{1} << (node.rounds - 1 - round);
    if (self % (2 * distance) == distance) {
      node.parent = absolute(self - distance);
      node.round = round;
      node.subtree = subtree(self, distance);
    } else if (self % (2 * distance) == 0 && self + distance < world) {
      node.children.push_back({absolute(self + distance), round, subtree(self + distance, distance)});
    }
  }
  return node;
}

Schedule binomial_tree(Collective collective, Rank world, Rank root) {
  return tree::build("binomial_tree", collective, world, root, &tree::binomial_node);
}

}  // namespace ranvier
