// Bruck's algorithms: what is bound for many ranks goes in common to one that is 1, 2, 4, … away, until it has come as
// far as it must. As few rounds and messages as there can be, for small parts in large worlds.
//
// J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient algorithms for all-to-all communications in
// multiport message-passing systems. IEEE Transactions on Parallel and Distributed Systems 8 (1997), with one port. Any
// world.
//
// Cost for n bytes over p ranks: ceil(log2 p) rounds. all_gather: a rank collects the parts of the ranks that follow
// it, twice as many with each round, (p-1)/p n bytes. all_to_all: a part that goes i ranks ahead moves in the rounds of
// the bits of i, about n/2 bytes a round; what leaves in one round is copied together first, so that it is one message.
// It keeps that, and what arrived in each round, in scratch: (1 + ceil(log2 p)) n/2 at most. Parts must have the same
// size.
#include <algorithm>
#include <bit>

#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

struct Bruck {
  Rank world;
  Rank rank;
  std::uint32_t rounds = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint32_t>(world - 1)));

  Rank ahead(Rank distance) const { return around(rank + distance, world); }
  Rank behind(Rank distance) const { return around(rank - distance, world); }

  std::vector<Step> all_gather() const {
    std::vector<Step> steps{copy(input(0), output(chunk_of(rank)), 0)};
    for (std::uint32_t k = 0; k < rounds; ++k) {
      const Rank distance = Rank{1} << k;
      const Rank chunks = std::min(distance, world - distance);
      each_run(rank, chunks, world, [&](std::uint32_t chunk, std::uint32_t count) {
        steps.push_back(send(behind(distance), output(chunk), k, count));
      });
      each_run(ahead(distance), chunks, world, [&](std::uint32_t chunk, std::uint32_t count) {
        steps.push_back(recv(ahead(distance), output(chunk), k, count));
      });
    }
    return steps;
  }

  // What goes i ranks ahead stays number i on its way. Nothing is put in its place before everything has left, since in
  // place it would lie where something else does.
  std::vector<Step> all_to_all() const {
    std::vector<Step> steps{copy(input(chunk_of(rank)), output(chunk_of(rank)), 0)};
    std::vector<Place> held;
    for (Rank i = 0; i < world; ++i) held.push_back(input(chunk_of(ahead(i))));
    for (std::uint32_t k = 0; k < rounds; ++k) {
      const Rank distance = Rank{1} << k;
      std::uint32_t leaving = 0;
      for (Rank i = 1; i < world; ++i) {
        if ((i & distance) == 0) continue;
        Place& place = held[static_cast<std::size_t>(i)];
        steps.push_back(copy(place, scratch(leaving), k));
        place = scratch(leaving, k + 1);  // its successor, which comes from behind
        ++leaving;
      }
      steps.push_back(send(ahead(distance), scratch(0), k, leaving));
      steps.push_back(recv(behind(distance), scratch(0, k + 1), k, leaving));
    }
    for (Rank i = 1; i < world; ++i)
      steps.push_back(copy(held[static_cast<std::size_t>(i)], output(chunk_of(behind(i))), rounds - 1));
    return steps;
  }
};

}  // namespace

Schedule bruck(Collective collective, Rank world) {
  check("bruck", collective, {Collective::all_gather, Collective::all_to_all}, world, 0);
  return {.algorithm = "bruck",
          .collective = collective,
          .world = world,
          .chunks = chunk_of(world),
          .program = [collective, world](Rank rank) {
            if (world == 1) return alone();
            const Bruck bruck{.world = world, .rank = rank};
            return collective == Collective::all_gather ? bruck.all_gather() : bruck.all_to_all();
          }};
}

}  // namespace ranvier
