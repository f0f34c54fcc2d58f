// The ring: every rank talks to its two neighbours only, and every link is busy all the time.
//
// P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations. J. Parallel and
// Distributed Computing 69 (2009). Chunk c starts at one rank, goes once around and is reduced at every stop; a second
// turn carries the result to everybody.
//
// Cost for n bytes over p ranks: all_reduce 2(p-1) rounds and 2(p-1)/p n bytes sent by each rank, the least there is;
// reduce_scatter and all_gather half of that. reduce_scatter holds (p-2)/p n of partial sums in scratch.
#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

struct Ring {
  Rank world;
  Rank rank;
  Rank next = around(rank + 1, world);
  Rank previous = around(rank - 1, world);

  // The chunk that left rank `start` when the turn began and stands `hops` stops behind it.
  std::uint32_t chunk(Rank start, Rank hops) const { return chunk_of(around(start - hops, world)); }

  std::vector<Step> all_reduce() const {
    std::vector<Step> steps;
    std::uint32_t round = 0;
    for (Rank hop = 0; hop < world - 1; ++hop, ++round) {
      const auto sent = chunk(rank, hop);
      const auto received = chunk(rank, hop + 1);
      steps.push_back(send(next, hop == 0 ? input(sent) : output(sent), round));
      steps.push_back(recv_reduce(previous, input(received), output(received), round, hop == world - 2));
    }
    for (Rank hop = 0; hop < world - 1; ++hop, ++round) {
      steps.push_back(send(next, output(chunk(next, hop)), round));
      steps.push_back(recv(previous, output(chunk(rank, hop)), round));
    }
    return steps;
  }

  // One stop earlier than in all_reduce, so that chunk r ends at rank r.
  std::vector<Step> reduce_scatter() const {
    std::vector<Step> steps;
    for (Rank hop = 0; hop < world - 1; ++hop) {
      const auto round = static_cast<std::uint32_t>(hop);
      const auto sent = chunk(previous, hop);
      const auto received = chunk(previous, hop + 1);
      const bool last = hop == world - 2;
      steps.push_back(send(next, hop == 0 ? input(sent) : scratch(sent), round));
      steps.push_back(recv_reduce(previous, input(received), last ? output(0) : scratch(received), round, last));
    }
    return steps;
  }

  std::vector<Step> all_gather() const {
    std::vector<Step> steps{copy(input(0), output(chunk_of(rank)), 0)};
    for (Rank hop = 0; hop < world - 1; ++hop) {
      const auto round = static_cast<std::uint32_t>(hop);
      steps.push_back(send(next, hop == 0 ? input(0) : output(chunk(rank, hop)), round));
      steps.push_back(recv(previous, output(chunk(rank, hop + 1)), round));
    }
    return steps;
  }
};

}  // namespace

Schedule ring(Collective collective, Rank world) {
  check("ring", collective, {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}, world, 0);
  return {.algorithm = "ring",
          .collective = collective,
          .world = world,
          .chunks = static_cast<std::uint32_t>(world),
          .program = [collective, world](Rank rank) {
            if (world == 1) return alone();
            const Ring ring{.world = world, .rank = rank};
            if (collective == Collective::all_reduce) return ring.all_reduce();
            if (collective == Collective::reduce_scatter) return ring.reduce_scatter();
            return ring.all_gather();
          }};
}

}  // namespace ranvier
