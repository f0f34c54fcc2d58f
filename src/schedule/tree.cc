#include "schedule/tree.h"

#include <algorithm>
#include <utility>

#include "schedule/steps.h"

namespace ranvier::tree {
namespace {

using namespace steps;

std::uint32_t upwards(const Node& node, std::uint32_t round) { return node.rounds - 1 - round; }

class Program {
 public:
  Program(Rank world, Rank rank, Node node) : world_(world), own_(chunk_of(rank)), node_(std::move(node)) {}

  std::vector<Step> build(Collective collective) && {
    switch (collective) {
      case Collective::broadcast:
        if (is_root()) steps_.push_back(copy(input(0), output(0), 0));
        add_broadcast(node_, {}, Buffer::input, steps_);
        break;
      case Collective::reduce:
        add_reduce(node_, {}, is_root() ? Buffer::output : Buffer::scratch, true, steps_);
        break;
      case Collective::all_reduce:
        add_reduce(node_, {}, Buffer::output, true, steps_);
        add_broadcast(node_, {.round = node_.rounds}, Buffer::output, steps_);
        break;
      case Collective::gather:
        gather();
        break;
      default:
        scatter();
    }
    return std::move(steps_);
  }

 private:
  bool is_root() const { return node_.parent < 0; }
  bool is_leaf() const { return node_.children.empty(); }
  std::uint32_t upwards(std::uint32_t round) const { return tree::upwards(node_, round); }

  void gather() {
    const auto place = [&](std::uint32_t chunk) { return is_root() ? output(chunk) : scratch(chunk); };
    if (is_root() || !is_leaf()) steps_.push_back(copy(input(0), place(own_), 0));
    for (auto child = node_.children.rbegin(); child != node_.children.rend(); ++child)
      each_run(child->subtree.first, child->subtree.ranks, world_, [&](std::uint32_t chunk, std::uint32_t chunks) {
        steps_.push_back(recv(child->rank, place(chunk), upwards(child->round), chunks));
      });
    if (is_root()) return;
    if (is_leaf())
      steps_.push_back(send(node_.parent, input(0), upwards(node_.round)));
    else
      each_run(node_.subtree.first, node_.subtree.ranks, world_, [&](std::uint32_t chunk, std::uint32_t chunks) {
        steps_.push_back(send(node_.parent, scratch(chunk), upwards(node_.round), chunks));
      });
  }

  void scatter() {
    if (is_root()) {
      steps_.push_back(copy(input(own_), output(0), 0));
    } else if (is_leaf()) {
      steps_.push_back(recv(node_.parent, output(0), node_.round));
    } else {
      each_run(node_.subtree.first, node_.subtree.ranks, world_, [&](std::uint32_t chunk, std::uint32_t chunks) {
        steps_.push_back(recv(node_.parent, scratch(chunk), node_.round, chunks));
      });
      steps_.push_back(copy(scratch(own_), output(0), node_.round));
    }
    for (const Child& child : node_.children)
      each_run(child.subtree.first, child.subtree.ranks, world_, [&](std::uint32_t chunk, std::uint32_t chunks) {
        steps_.push_back(send(child.rank, is_root() ? input(chunk) : scratch(chunk), child.round, chunks));
      });
  }

  Rank world_;
  std::uint32_t own_;
  Node node_;
  std::vector<Step> steps_;
};

}  // namespace

// Those that are served last come first, since they are done first.
void add_reduce(const Node& node, const Load& load, Buffer buffer, bool completes, std::vector<Step>& steps) {
  const Place partial{buffer, load.chunk};
  Place sum = input(load.chunk);
  for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
    const bool last = node.parent < 0 && child + 1 == node.children.rend();
    steps.push_back(recv_reduce(child->rank, sum, partial, load.round + upwards(node, child->round), completes && last,
                                load.chunks));
    sum = partial;
  }
  if (node.parent >= 0) steps.push_back(send(node.parent, sum, load.round + upwards(node, node.round), load.chunks));
}

void add_broadcast(const Node& node, const Load& load, Buffer buffer, std::vector<Step>& steps) {
  if (node.parent >= 0) steps.push_back(recv(node.parent, output(load.chunk), load.round + node.round, load.chunks));
  const Place from{node.parent < 0 ? buffer : Buffer::output, load.chunk};
  for (const Child& child : node.children)
    steps.push_back(send(child.rank, from, load.round + child.round, load.chunks));
}

Schedule build(std::string_view algorithm, Collective collective, Rank world, Rank root, NodeOf node_of) {
  check(algorithm, collective,
        {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::gather, Collective::scatter},
        world, root);
  const bool by_rank = collective == Collective::gather || collective == Collective::scatter;
  return {.algorithm = std::string(algorithm),
          .collective = collective,
          .world = world,
          .root = root,
          .chunks = by_rank ? chunk_of(world) : 1,
          .program = [=](Rank rank) {
            return world == 1 ? alone() : Program(world, rank, node_of(world, rank, root)).build(collective);
          }};
}

}  // namespace ranvier::tree
