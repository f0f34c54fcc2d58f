// Many dimensions: a reduce-scatter along each dimension of a grid, then an all-gather along each of them in the
// opposite order. Each dimension works on what the ones before it have left, so that a slow one may come last.
//
// M. Cho, U. Finkler, M. Serrano, D. Kung, H. Hunter: BlueConnect: Decomposing all-reduce for deep learning on
// heterogeneous network hierarchy. MLSys 2019. That no dimension waits, all_reduce cuts the vector into as many parts
// as there are dimensions and rotates their order from part to part, as P. Sack, W. Gropp: Collective algorithms for
// multiported torus networks. ACM Transactions on Parallel Computing 1 (2015), do on a torus. Within a dimension every
// pair exchanges at once, as across a switch; on a grid of 2x2x…x2 this is halving_doubling.
//
// Cost for n bytes over p ranks in a grid of d_1 x … x d_k = p: all_reduce 2k rounds and 2(p-1)/p n bytes sent by each
// rank, the least there is, in 2k sum(d_i - 1) messages; reduce_scatter and all_gather, whose chunks are numbered like
// the ranks and so cannot be cut, k rounds, (p-1)/p n bytes and sum(d_i - 1) messages. reduce_scatter keeps p/d_1
// partial sums in scratch where there is more than one dimension. Any world has a grid; that of a prime is a line, in
// which this is `direct`.
#include "schedule/grid.h"
#include "schedule/steps.h"

namespace ranvier {

Schedule multi_dimensional(Collective collective, Rank world, const std::vector<Rank>& dims) {
  steps::check("multi_dimensional", collective,
               {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}, world, 0);
  return grid::build_rotated("multi_dimensional", collective, world, grid::dims_of("multi_dimensional", world, dims),
                             grid::all_pairs);
}

}  // namespace ranvier
