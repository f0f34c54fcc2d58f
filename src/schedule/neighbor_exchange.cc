// Neighbour exchange: each rank of a grid sends one part to, and receives one from, the ranks beside it. It holds
// together what is split over ranks and looks at its surroundings, as stencils and convolutions do: the parts are the
// borders of the ranks' pieces, the others' the "halo" around a piece.
//
// MPI_Neighbor_alltoall on a Cartesian communicator (Message Passing Interface Forum: MPI: a message-passing interface
// standard, version 4.0, 2021), with its order of parts: dimension 0 down, dimension 0 up, dimension 1 down, … Beyond
// an open border there is nobody; the part keeps its place and is left alone. What goes down comes from above, also
// where both neighbours are one rank, or the rank itself.
//
// Cost of parts of m bytes in k dimensions: what all ranks send down moves in one round, what they send up in another:
// 2k messages and 2k m bytes sent by a rank that is nowhere at a border, and nothing to forward on the grid's own mesh
// or torus. Two rounds, not one, because a periodic dimension of two has a single cable: its two parts then take turns.
// Neither round waits for the other.
#include <fmt/format.h>

#include <utility>

#include "ranvier/error.h"
#include "schedule/grid.h"
#include "schedule/steps.h"

namespace ranvier {
namespace {

using namespace steps;

std::vector<Step> exchange(const CartesianGrid& grid, Rank rank) {
  std::vector<Step> steps;
  for (const std::uint32_t up : {0u, 1u})
    for (std::uint32_t d = 0; d < grid.dims.size(); ++d) {
      const std::uint32_t ahead = 2 * d + up;
      const std::uint32_t behind = opposite(ahead);
      const Rank to = neighbor(grid, rank, ahead);
      const Rank from = neighbor(grid, rank, behind);
      if (to == rank) {
        steps.push_back(copy(input(ahead), output(behind), up));
        continue;
      }
      if (to != no_neighbor) steps.push_back(send(to, input(ahead), up));
      if (from != no_neighbor) steps.push_back(recv(from, output(behind), up));
    }
  return steps;
}

}  // namespace

Rank neighbor(const CartesianGrid& grid, Rank rank, std::uint32_t direction) {
  const std::size_t along = direction / 2;
  Rank stride = 1;
  for (std::size_t d = along + 1; d < grid.dims.size(); ++d) stride *= grid.dims[d];
  const Rank size = grid.dims[along];
  const Rank coordinate = rank / stride % size;
  const Rank beside = coordinate + (direction % 2 == 0 ? -1 : 1);
  const bool periodic = !grid.periodic.empty() && grid.periodic[along];
  if (!periodic && (beside < 0 || beside >= size)) return no_neighbor;
  return rank + (around(beside, size) - coordinate) * stride;
}

Schedule neighbor_exchange(Rank world, CartesianGrid grid) {
  check("neighbor_exchange", Collective::neighbor_exchange, {Collective::neighbor_exchange}, world, 0);
  if (grid.dims.empty()) grid.dims = {world};
  grid.dims = grid::dims_of("neighbor_exchange", world, std::move(grid.dims));
  if (!grid.periodic.empty() && grid.periodic.size() != grid.dims.size())
    throw Error(ErrorKind::usage,
                fmt::format("algorithm 'neighbor_exchange' was given periods for {} dimensions, but its grid has {}; "
                            "give each dimension one, or none at all",
                            grid.periodic.size(), grid.dims.size()));
  return {.algorithm = "neighbor_exchange",
          .collective = Collective::neighbor_exchange,
          .world = world,
          .chunks = 2 * static_cast<std::uint32_t>(grid.dims.size()),
          .grid = grid,
          .program = [grid](Rank rank) { return exchange(grid, rank); }};
}

}  // namespace ranvier
