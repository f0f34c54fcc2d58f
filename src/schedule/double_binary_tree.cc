// Two binary trees at once: each carries one half of the vector, and a rank that has children in one tree is a leaf of
// the other. So every rank sends and receives about as much as any other, which one tree does not give.
//
// P. Sanders, J. Speck, J. L. Träff: Two-tree algorithms for full bandwidth broadcast, reduction and scan. Parallel
// Computing 35 (2009). The ranks other than the root are numbered 1 to m; in the first tree, number i hangs below a
// number that its lowest bit divides, so that odd ones are leaves; the second tree is the first one mirrored (even m)
// or shifted by one (odd m), so that even ones are. The root feeds the top of both. Large halves stream through as
// slices.
//
// Cost for n bytes over p ranks: broadcast and reduce ceil(log2 p) rounds; all_reduce twice that, in which a rank sends
// n bytes up, half in each tree, and n down to the two children that it has in one of them. A slice follows the one
// before it, so that for large n the time is that of these bytes. reduce makes its sums in n/2 of scratch.
#include <bit>

#include "schedule/steps.h"
#include "schedule/tree.h"

namespace ranvier {
namespace {

using namespace steps;

// The first tree on the numbers 1 to `count`.
struct Numbers {
  Rank count;

  Rank top() const { return static_cast<Rank>(std::bit_floor(static_cast<std::uint32_t>(count))); }
  static Rank left(Rank i) { return i % 2 == 1 ? 0 : i - (i & -i) / 2; }  // 0: none
  Rank right(Rank i) const {
    for (Rank step = (i & -i) / 2; step > 0; step /= 2)
      if (i + step <= count) return i + step;
    return 0;
  }
};

// `second`: of the second tree.
tree::Node node_of(Rank world, Rank rank, Rank root, bool second) {
  const Numbers numbers{world - 1};
  const Rank m = numbers.count;
  const auto rank_of = [&](Rank number) {
    const Rank from_root = !second ? number : m % 2 == 0 ? m + 1 - number : number == 1 ? m : number - 1;
    return around(root + from_root, world);
  };
  tree::Node node;
  node.rounds = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(m)));
  if (rank == root) {
    node.children.push_back({rank_of(numbers.top()), 0, {}});
    return node;
  }
  const Rank from_root = around(rank - root, world);
  const Rank self = !second ? from_root : m % 2 == 0 ? m + 1 - from_root : from_root % m + 1;
  node.parent = root;
  for (Rank at = numbers.top(); at != self; ++node.round) {
    node.parent = rank_of(at);
    at = self < at ? Numbers::left(at) : numbers.right(at);
  }
  for (const Rank child : {Numbers::left(self), numbers.right(self)})
    if (child != 0) node.children.push_back({rank_of(child), node.round + 1, {}});
  return node;
}

std::vector<Step> program(Collective collective, Rank world, Rank rank, Rank root) {
  std::vector<Step> steps;
  if (collective == Collective::broadcast && rank == root) steps.push_back(copy(input(0), output(0), 0, 2));
  for (const std::uint32_t half : {0u, 1u}) {
    const tree::Node node = node_of(world, rank, root, half == 1);
    const bool all = collective == Collective::all_reduce;
    if (collective != Collective::broadcast)
      tree::add_reduce(node, {.chunk = half}, all || rank == root ? Buffer::output : Buffer::scratch, true, steps);
    if (collective != Collective::reduce)
      tree::add_broadcast(node, {.chunk = half, .round = all ? node.rounds : 0}, all ? Buffer::output : Buffer::input,
                          steps);
  }
  return steps;
}

}  // namespace

Schedule double_binary_tree(Collective collective, Rank world, Rank root) {
  check("double_binary_tree", collective, {Collective::all_reduce, Collective::reduce, Collective::broadcast}, world,
        root);
  return {.algorithm = "double_binary_tree",
          .collective = collective,
          .world = world,
          .root = root,
          .chunks = world == 1 ? 1u : 2u,
          .program = [collective, world, root](Rank rank) {
            return world == 1 ? alone() : program(collective, world, rank, root);
          }};
}

}  // namespace ranvier
