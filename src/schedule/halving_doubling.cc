// Halving and doubling ("butterfly"): the distance between partners halves from round to round with the data that they
// exchange, and then both double again.
//
// A world that is a power of two: recursive halving and doubling over the edges of a hypercube, as in section 4 of
// R. Thakur, R. Rabenseifner, W. Gropp: Optimization of collective communication operations in MPICH. Int. J. High
// Performance Computing Applications 19 (2005). all_reduce starts with the nearest partner, since the first exchange is
// the largest and near ranks tend to share a host; the others start with the farthest, so that chunk r ends at rank r.
//
// Any other world: the same idea on a circulant graph, J. L. Träff: Optimal, non-pipelined reduce-scatter and allreduce
// algorithms. arXiv:2410.14234 (2024). Each rank sends `skip` ranks ahead and hears from `skip` behind. The usual way,
// to fold the ranks beyond the power of two into the others first, takes as many rounds but sends n bytes more.
//
// Cost for n bytes over p ranks: reduce_scatter and all_gather ceil(log2 p) rounds and (p-1)/p n bytes sent by each
// rank, both the least there is; all_reduce is one after the other. reduce_scatter holds half of the chunks, as partial
// sums, in scratch.
#include <bit>
#include <iterator>

#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

// Consecutive chunks, from the last one back to chunk 0 if they go beyond it.
struct Run {
  Rank first;
  Rank chunks;
};

// One round of a rank while distances halve: `give` goes to `to`, who reduces it on, and `keep` comes from `from`.
// While they double the same pairs speak the other way: `keep` goes to `from`, and `give` comes back from `to`.
struct Exchange {
  Rank to;
  Rank from;
  Run give;
  Run keep;
};

std::vector<Exchange> hypercube(Rank world, Rank rank, bool nearest_first) {
  std::vector<Exchange> exchanges;
  Run mine{0, world};
  for (Rank half = world / 2; half >= 1; half /= 2) {
    const Rank distance = nearest_first ? world / 2 / half : half;
    const Run lower{mine.first, half};
    const Run upper{mine.first + half, half};
    const bool in_upper = (rank & distance) != 0;
    mine = in_upper ? upper : lower;
    exchanges.push_back(
        {.to = rank ^ distance, .from = rank ^ distance, .give = in_upper ? lower : upper, .keep = mine});
  }
  return exchanges;
}

// Before each round a rank holds partial sums of the `span` chunks from its own one on.
std::vector<Exchange> circulant(Rank world, Rank rank) {
  std::vector<Exchange> exchanges;
  for (Rank span = world; span > 1;) {
    const Rank skip = (span + 1) / 2;
    const Rank to = around(rank + skip, world);
    exchanges.push_back(
        {.to = to, .from = around(rank - skip, world), .give = {to, span - skip}, .keep = {rank, span - skip}});
    span = skip;
  }
  return exchanges;
}

class HalvingDoubling {
 public:
  HalvingDoubling(Collective collective, Rank world, Rank rank) : collective_(collective), world_(world), rank_(rank) {
    hypercube_ = std::has_single_bit(static_cast<std::uint32_t>(world));
    exchanges_ = hypercube_ ? hypercube(world, rank, collective == Collective::all_reduce) : circulant(world, rank);
  }

  std::vector<Step> build() && {
    if (collective_ == Collective::all_gather) {
      steps_.push_back(copy(input(0), output(chunk_of(rank_)), 0));
      double_distances();
      return std::move(steps_);
    }
    halve_distances();
    if (collective_ == Collective::all_reduce) double_distances();
    return std::move(steps_);
  }

 private:
  // Where partial sums are kept: an all_reduce has the room in its output.
  Place partial(std::uint32_t chunk) const {
    return collective_ == Collective::all_reduce ? output(chunk) : scratch(chunk);
  }
  Place result(std::uint32_t chunk) const { return collective_ == Collective::all_reduce ? output(chunk) : output(0); }

  void halve_distances() {
    for (const Exchange& exchange : exchanges_) {
      const bool first = round_ == 0;
      const bool last = round_ + 1 == exchanges_.size();
      each_run(exchange.give.first, exchange.give.chunks, world_, [&](std::uint32_t chunk, std::uint32_t chunks) {
        steps_.push_back(send(exchange.to, first ? input(chunk) : partial(chunk), round_, chunks));
      });
      each_run(exchange.keep.first, exchange.keep.chunks, world_, [&](std::uint32_t chunk, std::uint32_t chunks) {
        steps_.push_back(recv_reduce(exchange.from, first ? input(chunk) : partial(chunk),
                                     last ? result(chunk) : partial(chunk), round_, last, chunks));
      });
      // With an odd span one chunk more is still held than was reduced; it joins the partial sums as it is.
      if (first && !last && !hypercube_ && world_ % 2 == 1) {
        const auto lone = chunk_of(around(rank_ + exchange.keep.chunks, world_));
        steps_.push_back(copy(input(lone), partial(lone), round_));
      }
      ++round_;
    }
  }

  void double_distances() {
    for (auto exchange = exchanges_.rbegin(); exchange != exchanges_.rend(); ++exchange, ++round_) {
      each_run(exchange->keep.first, exchange->keep.chunks, world_, [&](std::uint32_t chunk, std::uint32_t chunks) {
        steps_.push_back(send(exchange->from, output(chunk), round_, chunks));
      });
      each_run(exchange->give.first, exchange->give.chunks, world_, [&](std::uint32_t chunk, std::uint32_t chunks) {
        steps_.push_back(recv(exchange->to, output(chunk), round_, chunks));
      });
    }
  }

  Collective collective_;
  Rank world_;
  Rank rank_;
  bool hypercube_;
  std::vector<Exchange> exchanges_;
  std::vector<Step> steps_;
  std::uint32_t round_ = 0;
};

}  // namespace

Schedule halving_doubling(Collective collective, Rank world) {
  check("halving_doubling", collective, {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather},
        world, 0);
  return {.algorithm = "halving_doubling",
          .collective = collective,
          .world = world,
          .chunks = static_cast<std::uint32_t>(world),
          .program = [collective, world](Rank rank) {
            return world == 1 ? alone() : HalvingDoubling(collective, world, rank).build();
          }};
}

}  // namespace ranvier
