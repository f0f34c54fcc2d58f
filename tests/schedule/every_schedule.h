// Walks over everything that the registry can build.
#pragma once

#include <string>

#include "ranvier/schedule.h"

namespace ranvier {

inline bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce || collective == Collective::gather ||
         collective == Collective::scatter;
}

inline bool moves_whole_vector(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::broadcast;
}

// Calls `visit` with each algorithm's schedule of each collective in a world of `world`.
template <class Visit>
void for_each_schedule(Rank world, Rank root, Visit visit) {
  for (const Algorithm& algorithm : algorithms())
    for (const Collective collective : algorithm.collectives)
      visit(algorithm.build({.collective = collective, .world = world, .root = root}));
}

inline std::string name(const Schedule& schedule) {
  return schedule.algorithm + " " + std::string(name_of(schedule.collective)) + " of " +
         std::to_string(schedule.world) + " ranks, root " + std::to_string(schedule.root);
}

inline std::string name(const VerifyOptions& options) {
  return std::string(options.in_place ? "in place" : "out of place") + ", " + std::to_string(options.buffered_slices) +
         " slices buffered, " + std::to_string(options.count) + " elements";
}

}  // namespace ranvier
