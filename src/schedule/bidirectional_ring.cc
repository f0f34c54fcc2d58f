// The ring in both directions: a chunk's partial sums come towards its owner from both sides at once, and the result
// goes out to both sides.
//
// N. Jain, Y. Sabharwal: Optimal bucket algorithms for large MPI collectives on torus interconnects. ICS 2010, on one
// dimension. Each round moves one chunk over each link in each direction, so that links that carry both at once (full
// duplex) give their whole bandwidth. Sending half of the vector around each way, as is also done, takes as long for
// the bytes but twice as many rounds.
//
// Cost for n bytes over p ranks: reduce_scatter and all_gather floor(p/2) rounds, in which a rank sends (p-1)/p n
// bytes, half of them each way; all_reduce twice that. reduce_scatter keeps partial sums of all chunks but its own and
// the two that it sends first, (p-3)/p n, in scratch.
#include "schedule/grid.h"
#include "schedule/steps.h"

namespace ranvier {

Schedule bidirectional_ring(Collective collective, Rank world) {
  steps::check("bidirectional_ring", collective,
               {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}, world, 0);
  return grid::build_rotated("bidirectional_ring", collective, world, {world}, grid::both_ways_around);
}

}  // namespace ranvier
