// By node: ranks of a node reduce-scatter among themselves, then each talks to those of the other nodes that hold the
// same share, and the node gathers the results. So only n / (ranks per node) of each rank crosses between the nodes,
// and all ranks of a node cross at once.
//
// M. Cho, U. Finkler, M. Serrano, D. Kung, H. Hunter: BlueConnect: Decomposing all-reduce for deep learning on
// heterogeneous network hierarchy. MLSys 2019, with two levels: all pairs at once inside a node, a ring in both
// directions between nodes. Where the last node has fewer ranks than the others, shares do not match, and the first
// rank of each node speaks for it: a binomial tree brings everything to these leaders, who go on as a ring, and takes
// the result back.
//
// Cost for n bytes over N nodes of m ranks, p = N m: all_reduce 2 + 2 floor(N/2) rounds and 2(p-1)/p n bytes sent by
// each rank, 2(N-1)/p n of which leave the node; reduce_scatter and all_gather half of both. With leaders: all_reduce
// 2 ceil(log2 m) + 2 floor(N/2) rounds, and a leader sends ceil(log2 m) n inside its node and 2(N-1)/N n between nodes;
// the others take 1 + ceil(log2 m) + floor(N/2) rounds (docs/algorithms.md).
// reduce_scatter makes its sums in scratch: n/m, or the whole vector with leaders.
#include <fmt/format.h>

#include <algorithm>

#include "ranvier/error.h"
#include "schedule/grid.h"
#include "schedule/steps.h"
#include "schedule/tree.h"

namespace ranvier {
namespace {

using namespace steps;

// Nodes of different sizes.
class Leaders {
 public:
  Leaders(Rank world, Rank per_node, Rank rank)
      : world_(world), per_node_(per_node), rank_(rank), nodes_((world + per_node - 1) / per_node) {
    leader_ = first_of(rank / per_node);
    tree_ = tree::binomial_node(size_of(rank / per_node), rank - leader_, 0);
    if (tree_.parent >= 0) tree_.parent += leader_;
    for (tree::Child& child : tree_.children) child.rank += leader_;
    tree_rounds_ = tree::binomial_node(per_node, 0, 0).rounds;
  }

  std::vector<Step> all_reduce() && {
    tree::add_reduce(tree_, {.chunks = chunk_of(nodes_)}, Buffer::output, false, steps_);
    grid::Stage stage = between(tree_rounds_);
    for (Rank node = 0; node < nodes_; ++node) stage.shares.push_back({{chunk_of(node), 1}});
    stage.partial = stage.result = &output_chunk;
    stage.before = alone_in_node() ? &input : &output_chunk;
    if (leads()) ring_.reduce_scatter(stage, steps_);
    stage.round += ring_.rounds(nodes_);
    if (leads()) ring_.all_gather(stage, steps_);
    tree::add_broadcast(tree_, {.chunks = chunk_of(nodes_), .round = stage.round + ring_.rounds(nodes_)},
                        Buffer::output, steps_);
    return std::move(steps_);
  }

  std::vector<Step> reduce_scatter() && {
    tree::add_reduce(tree_, {.chunks = chunk_of(world_)}, Buffer::scratch, false, steps_);
    grid::Stage stage = between_blocks(tree_rounds_);
    stage.partial = [](std::uint32_t chunk) { return scratch(chunk); };
    stage.before = alone_in_node() ? grid::PlaceOf(&input) : stage.partial;
    stage.result = alone_in_node() ? grid::PlaceOf([](std::uint32_t) { return output(0); }) : stage.partial;
    if (leads()) ring_.reduce_scatter(stage, steps_);
    const std::uint32_t last = stage.round + ring_.rounds(nodes_);
    if (!leads()) {
      steps_.push_back(recv(leader_, output(0), last));
    } else if (!alone_in_node()) {
      steps_.push_back(copy(scratch(chunk_of(rank_)), output(0), last));
      for (const Rank member : members()) steps_.push_back(send(member, scratch(chunk_of(member)), last));
    }
    return std::move(steps_);
  }

  std::vector<Step> all_gather() && {
    if (!leads()) {
      steps_.push_back(send(leader_, input(0), 0));
    } else {
      steps_.push_back(copy(input(0), output(chunk_of(rank_)), 0));
      for (const Rank member : members()) steps_.push_back(recv(member, output(chunk_of(member)), 0));
    }
    grid::Stage stage = between_blocks(1);
    stage.result = &output_chunk;
    if (leads()) ring_.all_gather(stage, steps_);
    tree::add_broadcast(tree_, {.chunks = chunk_of(world_), .round = stage.round + ring_.rounds(nodes_)},
                        Buffer::output, steps_);
    return std::move(steps_);
  }

 private:
  static Place output_chunk(std::uint32_t chunk) { return output(chunk); }

  Rank first_of(Rank node) const { return node * per_node_; }
  Rank size_of(Rank node) const { return std::min(per_node_, world_ - first_of(node)); }
  bool leads() const { return rank_ == leader_; }
  bool alone_in_node() const { return size_of(rank_ / per_node_) == 1; }
  std::vector<Rank> members() const {
    std::vector<Rank> others;
    for (Rank i = 1; i < size_of(rank_ / per_node_); ++i) others.push_back(leader_ + i);
    return others;
  }

  grid::Stage between(std::uint32_t round) const {
    grid::Stage stage;
    for (Rank node = 0; node < nodes_; ++node) stage.members.push_back(first_of(node));
    stage.self = rank_ / per_node_;
    stage.round = round;
    stage.completes = true;
    return stage;
  }
  // The share of a node is its ranks' chunks.
  grid::Stage between_blocks(std::uint32_t round) const {
    grid::Stage stage = between(round);
    for (Rank node = 0; node < nodes_; ++node)
      stage.shares.push_back({{chunk_of(first_of(node)), chunk_of(size_of(node))}});
    return stage;
  }

  Rank world_;
  Rank per_node_;
  Rank rank_;
  Rank nodes_;
  Rank leader_;
  tree::Node tree_;  // of this rank's node
  std::uint32_t tree_rounds_;
  const grid::Pattern& ring_ = grid::both_ways_around;
  std::vector<Step> steps_;
};

}  // namespace

Schedule hierarchical(Collective collective, Rank world, Rank ranks_per_node) {
  check("hierarchical", collective, {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}, world,
        0);
  if (ranks_per_node < 0)
    throw Error(ErrorKind::usage,
                fmt::format("algorithm 'hierarchical' was given nodes of {} ranks; give 1 or more, or 0 for any",
                            ranks_per_node));
  const Rank per_node = ranks_per_node == 0 ? grid::balanced_divisor(world) : std::min(ranks_per_node, world);
  if (world % per_node == 0)
    return grid::build("hierarchical", collective, world,
                       {{world / per_node, per_node}, {grid::both_ways_around, grid::all_pairs}}, {{1, 0}});
  const bool whole = collective == Collective::all_reduce;
  return {.algorithm = "hierarchical",
          .collective = collective,
          .world = world,
          .chunks = chunk_of(whole ? (world + per_node - 1) / per_node : world),
          .program = [collective, world, per_node](Rank rank) {
            Leaders leaders(world, per_node, rank);
            if (collective == Collective::all_reduce) return std::move(leaders).all_reduce();
            if (collective == Collective::reduce_scatter) return std::move(leaders).reduce_scatter();
            return std::move(leaders).all_gather();
          }};
}

}  // namespace ranvier
