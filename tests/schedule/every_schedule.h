// Walks over everything that the registry can build.
#pragma once

#include <string>
#include <vector>

#include "ranvier/schedule.h"

namespace ranvier {

inline bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

inline bool works_in_place(const Schedule& schedule) { return schedule.collective != Collective::neighbor_exchange; }
// Whether to call it in place: both, where both are allowed.
inline std::vector<bool> places(const Schedule& schedule) {
  return works_in_place(schedule) ? std::vector{false, true} : std::vector{false};
}

// Calls `visit` with each algorithm's schedule of each collective in a world of `world`.
template <class Visit>
void for_each_schedule(Rank world, Rank root, Visit visit) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : algorithm.collectives)
      visit(algorithm.build({.collective = collective, .world = world, .root = root}));
}

// Dims that an algorithm would not choose itself: a grid of three dimensions where the world has one, and nodes the
// last of which has fewer ranks than the others. Empty where there are none.
inline std::vector<Rank> unusual_dims(Dims dims, Rank world) {
  if (dims == Dims::node) {
    for (Rank per_node = 2; per_node < world; ++per_node)
      if (world % per_node != 0) return {per_node};
  } else if (dims == Dims::grid || dims == Dims::periodic_grid) {
    std::vector<Rank> sizes;
    for (Rank prime = 2; prime <= world && sizes.size() < 2; world % prime == 0 ? world /= prime : ++prime)
      if (world % prime == 0) sizes.push_back(prime);
    if (sizes.size() == 2 && world > 1) return {sizes[0], world, sizes[1]};
  }
  return {};
}

// The same, and each algorithm that takes dims once more with unusual ones, and periods with one.
template <class Visit>
void for_each_shape(Rank world, Rank root, Visit visit) {
  for_each_schedule(world, root, visit);
  for (const Algorithm& algorithm : algorithms())
    if (const std::vector<Rank> dims = unusual_dims(algorithm.dims, world); !dims.empty())
      for (const Collective collective : algorithm.collectives)
        visit(algorithm.build({.collective = collective, .world = world, .root = root, .dims = dims}));
  visit(neighbor_exchange(world, {.dims = {world}, .periodic = {true}}));
}

inline std::string name(const Schedule& schedule) {
  return schedule.algorithm + " " + std::string(name_of(schedule.collective)) + " of " +
         std::to_string(schedule.world) + " ranks, root " + std::to_string(schedule.root) + ", " +
         std::to_string(schedule.chunks) + " chunks";
}

inline std::string name(const VerifyOptions& options) {
  return std::string(options.in_place ? "in place" : "out of place") + ", " + std::to_string(options.buffered_slices) +
         " slices buffered, " + std::to_string(options.count) + " elements";
}

}  // namespace ranvier
