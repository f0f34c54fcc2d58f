// One round: everybody's whole vector goes to everybody, and each rank reduces all of them itself.
//
// The all-to-all broadcast followed by a local reduction of R. Thakur, R. Rabenseifner, W. Gropp: Optimization of
// collective communication operations in MPICH. Int. J. High Performance Computing Applications 19 (2005), section 4.5.
//
// Cost for n bytes over p ranks: one round and (p-1) n bytes sent by each rank: the least latency there is, for vectors
// so small that bytes do not count.
//
// Every rank reduces in the order 0, 1, …, p-1, so that all end with the same bits: a (+) b and b (+) a are the same
// bits, (a (+) b) (+) c and a (+) (b (+) c) are not. Ranks 0 and 1 start with their own vector; any other collects its
// predecessors in scratch until its own turn comes.
#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

std::vector<Step> one_round_program(Rank world, Rank rank) {
  if (world == 1) return alone();
  const Rank last = world - 1;
  std::vector<Step> steps;
  steps.reserve(2 * static_cast<std::size_t>(world) + 1);  // of large worlds growing would take as long as the rest
  for (Rank d = 1; d < world; ++d) steps.push_back(send(around(rank + d, world), input(0), 0));

  if (rank < 2) {
    steps.push_back(recv_reduce(1 - rank, input(0), output(0), 0, last == 1));
    for (Rank peer = 2; peer < world; ++peer) steps.push_back(recv_reduce(peer, output(0), output(0), 0, peer == last));
    return steps;
  }

  steps.push_back(recv(0, scratch(0), 0));
  for (Rank peer = 1; peer < rank; ++peer) steps.push_back(recv_reduce(peer, scratch(0), scratch(0), 0, false));
  if (rank == last) {
    steps.push_back(copy(input(0), output(0), 0));
    steps.push_back(reduce(scratch(0), output(0), 0, true));
    return steps;
  }
  steps.push_back(reduce(input(0), scratch(0), 0, false));
  for (Rank peer = rank + 1; peer < world; ++peer)
    steps.push_back(recv_reduce(peer, peer == rank + 1 ? scratch(0) : output(0), output(0), 0, peer == last));
  return steps;
}

}  // namespace

Schedule one_round(Rank world) {
  check("one_round", Collective::all_reduce, {Collective::all_reduce}, world, 0);
  return {.algorithm = "one_round",
          .collective = Collective::all_reduce,
          .world = world,
          .chunks = 1,
          // In place, ranks 0 and 1 reduce into what they have just sent to each other: it must be under way first.
          .buffered_in_place = world > 1,
          .program = [world](Rank rank) { return one_round_program(world, rank); }};
}

}  // namespace ranvier
