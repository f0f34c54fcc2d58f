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

namespace ranvier {
namespace {

using namespace steps;

class BinomialTree {
 public:
  BinomialTree(Rank world, Rank rank, Rank root) : world_(world), rank_(rank), root_(root) {
    self_ = around(rank - root, world);
    while ((Rank{1} << rounds_) < world) ++rounds_;
  }

  std::vector<Step> broadcast() && {
    if (self_ == 0) steps_.push_back(copy(input(0), output(0), 0));
    send_down(self_ == 0 ? input(0) : output(0), 0);
    return std::move(steps_);
  }

  std::vector<Step> reduce() && {
    send_up(self_ == 0 ? output(0) : scratch(0));
    return std::move(steps_);
  }

  std::vector<Step> all_reduce() && {
    send_up(output(0));
    send_down(output(0), rounds_);
    return std::move(steps_);
  }

  std::vector<Step> gather() && {
    const bool leaf = self_ != 0 && subtree() == 1;
    if (self_ == 0) steps_.push_back(copy(input(0), output(own()), 0));
    if (self_ != 0 && !leaf) steps_.push_back(copy(input(0), scratch(own()), 0));
    for (std::uint32_t round = 0; round < rounds_; ++round) {
      const Rank distance = Rank{1} << round;
      if (self_ & distance) {
        if (leaf)
          steps_.push_back(send(parent(), input(0), round));
        else
          pieces(self_, [&](std::uint32_t chunk, std::uint32_t chunks) {
            steps_.push_back(send(parent(), scratch(chunk), round, chunks));
          });
        break;
      }
      if (self_ + distance >= world_) continue;
      pieces(self_ + distance, [&](std::uint32_t chunk, std::uint32_t chunks) {
        const Place into = self_ == 0 ? output(chunk) : scratch(chunk);
        steps_.push_back(recv(absolute(self_ + distance), into, round, chunks));
      });
    }
    return std::move(steps_);
  }

  std::vector<Step> scatter() && {
    const bool leaf = self_ != 0 && subtree() == 1;
    if (self_ == 0) steps_.push_back(copy(input(own()), output(0), 0));
    for (std::uint32_t round = 0; round < rounds_; ++round) {
      const Rank distance = Rank{1} << (rounds_ - 1 - round);
      if (self_ % (2 * distance) == distance) {
        if (leaf) {
          steps_.push_back(recv(parent(), output(0), round));
        } else {
          pieces(self_, [&](std::uint32_t chunk, std::uint32_t chunks) {
            steps_.push_back(recv(parent(), scratch(chunk), round, chunks));
          });
          steps_.push_back(copy(scratch(own()), output(0), round));
        }
      } else if (self_ % (2 * distance) == 0 && self_ + distance < world_) {
        pieces(self_ + distance, [&](std::uint32_t chunk, std::uint32_t chunks) {
          const Place from = self_ == 0 ? input(chunk) : scratch(chunk);
          steps_.push_back(send(absolute(self_ + distance), from, round, chunks));
        });
      }
    }
    return std::move(steps_);
  }

 private:
  Rank absolute(Rank from_root) const { return around(from_root + root_, world_); }
  Rank parent() const { return absolute(self_ & (self_ - 1)); }
  std::uint32_t own() const { return chunk_of(rank_); }
  Rank subtree() const { return subtree(self_); }
  Rank subtree(Rank from_root) const {
    return from_root == 0 ? world_ : std::min(from_root & -from_root, world_ - from_root);
  }

  // Calls `emit(first chunk, how many)` for the one or two runs of chunks that the subtree of `from_root` makes.
  template <class Emit>
  void pieces(Rank from_root, Emit emit) const {
    const Rank first = absolute(from_root);
    const Rank all = subtree(from_root);
    const Rank before_end = std::min(all, world_ - first);
    emit(chunk_of(first), static_cast<std::uint32_t>(before_end));
    if (before_end < all) emit(0u, static_cast<std::uint32_t>(all - before_end));
  }

  // Nearest children first, since they are done first; sums gather in `partial`.
  void send_up(Place partial) {
    Place sum = input(0);
    for (std::uint32_t round = 0; round < rounds_; ++round) {
      const Rank distance = Rank{1} << round;
      if (self_ & distance) {
        steps_.push_back(send(parent(), sum, round));
        return;
      }
      if (self_ + distance >= world_) continue;
      const bool completes = self_ == 0 && round + 1 == rounds_;
      steps_.push_back(recv_reduce(absolute(self_ + distance), sum, partial, round, completes));
      sum = partial;
    }
  }

  // Farthest children first, since they have most to pass on.
  void send_down(Place from, std::uint32_t first_round) {
    for (std::uint32_t round = 0; round < rounds_; ++round) {
      const Rank distance = Rank{1} << (rounds_ - 1 - round);
      if (self_ % (2 * distance) == distance)
        steps_.push_back(recv(parent(), output(0), first_round + round));
      else if (self_ % (2 * distance) == 0 && self_ + distance < world_)
        steps_.push_back(send(absolute(self_ + distance), from, first_round + round));
    }
  }

  Rank world_;
  Rank rank_;
  Rank root_;
  Rank self_;  // this rank, counted from the root
  std::uint32_t rounds_ = 0;
  std::vector<Step> steps_;
};

}  // namespace

Schedule binomial_tree(Collective collective, Rank world, Rank root) {
  check("binomial_tree", collective,
        {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::gather, Collective::scatter},
        world, root);
  const bool by_rank = collective == Collective::gather || collective == Collective::scatter;
  return {.algorithm = "binomial_tree",
          .collective = collective,
          .world = world,
          .root = root,
          .chunks = by_rank ? static_cast<std::uint32_t>(world) : 1,
          .program = [collective, world, root](Rank rank) {
            if (world == 1) return alone();
            BinomialTree tree(world, rank, root);
            if (collective == Collective::all_reduce) return std::move(tree).all_reduce();
            if (collective == Collective::reduce) return std::move(tree).reduce();
            if (collective == Collective::broadcast) return std::move(tree).broadcast();
            if (collective == Collective::gather) return std::move(tree).gather();
            return std::move(tree).scatter();
          }};
}

}  // namespace ranvier
