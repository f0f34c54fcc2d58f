// The mesh: a torus without the links that close its rings, as grids of chips on one board are. Along a line, a share's
// partial sums come towards its owner from both ends, and the result goes out to both ends.
//
// The bucket algorithms on a linear array of E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective
// communication: theory, practice, and experience. Concurrency and Computation 19 (2007), one dimension after the
// other; all_reduce cuts the vector into as many parts as there are dimensions, part k beginning with dimension k.
//
// Cost for n bytes over p ranks in a grid of d_1 x … x d_k = p: reduce_scatter sum(d_i - 1) rounds and (p-1)/p n bytes
// sent by each rank, the least there is; all_gather as many rounds, and a rank in the middle of a line passes what
// comes from either side on to the other: along d_i it sends d_i + 1 shares, where one at an end sends a single one.
// all_reduce is one after the other. Any world has a grid; that of a prime is one line.
#include "schedule/grid.h"
#include "schedule/steps.h"

namespace ranvier {

Schedule mesh(Collective collective, Rank world, const std::vector<Rank>& dims) {
  steps::check("mesh", collective, {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}, world,
               0);
  return grid::build_rotated("mesh", collective, world, grid::dims_of("mesh", world, dims), grid::along_a_line);
}

}  // namespace ranvier
