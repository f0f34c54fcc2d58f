// The torus: a ring in both directions along each dimension, one dimension after the other. Ranks talk to their
// neighbours only, two a dimension.
//
// P. Sack, W. Gropp: Collective algorithms for multiported torus networks. ACM Transactions on Parallel Computing 1
// (2015), and N. Jain, Y. Sabharwal: Optimal bucket algorithms for large MPI collectives on torus interconnects. ICS
// 2010. all_reduce cuts the vector into as many parts as there are dimensions, part k beginning with dimension k, so
// that the links of all dimensions, in both directions, work all the time where dimensions are equal.
//
// Cost for n bytes over p ranks in a grid of d_1 x … x d_k = p: all_reduce 2 sum(floor(d_i/2)) rounds and 2(p-1)/p n
// bytes sent by each rank, the least there is; reduce_scatter and all_gather half of both. Any world has a grid; that
// of a prime is one ring.
#include "schedule/grid.h"
#include "schedule/steps.h"

namespace ranvier {

Schedule torus(Collective collective, Rank world, const std::vector<Rank>& dims) {
  steps::check("torus", collective, {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}, world,
               0);
  return grid::build_rotated("torus", collective, world, grid::dims_of("torus", world, dims), grid::both_ways_around);
}

}  // namespace ranvier
