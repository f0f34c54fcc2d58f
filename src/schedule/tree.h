// Collectives over a tree that spans all ranks, whatever its shape. Inner ranks of a gather or scatter pass on parts of
// others, whose sizes they have to know where these differ: see Layout::parts.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ranvier/schedule.h"

namespace ranvier::tree {

// Consecutive ranks, from the last one on to rank 0.
struct Span {
  Rank first = 0;
  Rank ranks = 1;
};

struct Child {
  Rank rank;
  std::uint32_t round;  // in which the parent serves it on the way down; on the way up rounds run backwards
  Span subtree;         // the ranks below it, itself included
};

// One rank's place in the tree.
struct Node {
  Rank parent = -1;         // none at the root
  std::uint32_t round = 0;  // in which the parent serves this rank on the way down
  Span subtree = {};
  std::vector<Child> children = {};  // in the order in which they are served on the way down
  std::uint32_t rounds = 0;          // of the whole tree
};

// Where `rank` stands in the tree of `world` ranks that hangs from `root`.
using NodeOf = Node (*)(Rank world, Rank rank, Rank root);

Node binomial_node(Rank world, Rank rank, Rank root);

// Consecutive chunks that a tree moves together, and its first round.
struct Load {
  std::uint32_t chunk = 0;
  std::uint32_t chunks = 1;
  std::uint32_t round = 0;
};
// The sum of all inputs comes up to the root. Sums are made in `buffer`, chunk by chunk; `completes`: no others come.
void add_reduce(const Node&, const Load&, Buffer buffer, bool completes, std::vector<Step>&);
// What the root has in `buffer` goes down to everybody's output.
void add_broadcast(const Node&, const Load&, Buffer buffer, std::vector<Step>&);

// broadcast, reduce, gather, scatter, and all_reduce as a reduce and a broadcast.
Schedule build(std::string_view algorithm, Collective, Rank world, Rank root, NodeOf);

}  // namespace ranvier::tree
