// The ring: every rank talks to its two neighbours only, and every link is busy all the time.
//
// P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations. J. Parallel and
// Distributed Computing 69 (2009). Chunk c starts at one rank, goes once around and is reduced at every stop; a second
// turn carries the result to everybody.
//
// broadcast and reduce are a ring without the link that closes it: a chain from or to the root, along which slices
// follow one another. P. Patarasuk, A. Faraj, X. Yuan: Pipelined broadcast on Ethernet switched clusters. IPDPS 2006.
//
// Cost for n bytes over p ranks: all_reduce 2(p-1) rounds and 2(p-1)/p n bytes sent by each rank, the least there is;
// reduce_scatter and all_gather half of that. reduce_scatter holds (p-2)/p n of partial sums in scratch. broadcast and
// reduce p-1 rounds and n bytes in one message; reduce makes its sums in n of scratch.
#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

struct Ring {
  Rank world;
  Rank rank;
  Rank root;
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
      steps.push_back(send(next, output(chunk(rank, hop)), round));
      steps.push_back(recv(previous, output(chunk(rank, hop + 1)), round));
    }
    return steps;
  }

  std::vector<Step> broadcast() const {
    const auto stops = static_cast<std::uint32_t>(around(rank - root, world));  // from the root to here
    if (stops == 0) return {copy(input(0), output(0), 0), send(next, input(0), 0)};
    std::vector<Step> steps{recv(previous, output(0), stops - 1)};
    if (next != root) steps.push_back(send(next, output(0), stops));
    return steps;
  }

  // The rank behind the root begins, so that the sum comes around to it.
  std::vector<Step> reduce() const {
    const auto stops = static_cast<std::uint32_t>(around(rank - root - 1, world));  // from there to here
    if (stops == 0) return {send(next, input(0), 0)};
    if (rank == root) return {recv_reduce(previous, input(0), output(0), stops - 1, true)};
    return {recv_reduce(previous, input(0), scratch(0), stops - 1, false), send(next, scratch(0), stops)};
  }

  std::vector<Step> program(Collective collective) const {
    switch (collective) {
      case Collective::all_reduce:
        return all_reduce();
      case Collective::reduce_scatter:
        return reduce_scatter();
      case Collective::broadcast:
        return broadcast();
      case Collective::reduce:
        return reduce();
      default:
        return all_gather();
    }
  }
};

}  // namespace

Schedule ring(Collective collective, Rank world, Rank root) {
  using enum Collective;
  check("ring", collective, {all_reduce, reduce_scatter, all_gather, broadcast, reduce}, world, root);
  const bool chain = collective == broadcast || collective == Collective::reduce;
  return {.algorithm = "ring",
          .collective = collective,
          .world = world,
          .root = root,
          .chunks = chain ? 1 : static_cast<std::uint32_t>(world),
          .program = [collective, world, root](Rank rank) {
            if (world == 1) return alone();
            return Ring{.world = world, .rank = rank, .root = root}.program(collective);
          }};
}

}  // namespace ranvier
