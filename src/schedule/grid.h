// Collectives along the dimensions of a grid, one dimension after the other. A reduce-scatter along a dimension leaves
// each rank with its share of what it held; the next dimension goes on with that share; an all-gather takes the
// dimensions in the opposite order. What happens within one dimension is a pattern of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "ranvier/schedule.h"
#include "schedule/runs.h"

namespace ranvier::grid {

using PlaceOf = std::function<Place(std::uint32_t chunk)>;

// One reduce-scatter or all-gather among the ranks of one line of the grid: those that differ in one coordinate only.
struct Stage {
  std::vector<Rank> members;             // by coordinate
  Rank self = 0;                         // this rank's coordinate
  std::vector<std::vector<Run>> shares;  // by coordinate: what that member ends with (or begins with, to gather)
  std::uint32_t round = 0;               // the first one
  // Where a chunk is before the stage, while sums of it pass through, and at its end. An all-gather uses `result` only.
  PlaceOf before = {}, partial = {}, result = {};
  bool completes = false;  // this stage adds the last contributions
};

// What to do within a dimension. Rounds depend on nothing but its size.
struct Pattern {
  std::uint32_t (*rounds)(Rank members);
  void (*reduce_scatter)(const Stage&, std::vector<Step>&);
  void (*all_gather)(const Stage&, std::vector<Step>&);
};

// Every pair of a line exchanges at once: one round, in which a rank sends members - 1 messages.
extern const Pattern all_pairs;
// Neighbours only, both ways around: members / 2 rounds. Partial sums of a share come towards its owner from both
// sides.
extern const Pattern both_ways_around;
// Neighbours only, no link between the last and the first: members - 1 rounds.
extern const Pattern along_a_line;

// A grid whose ranks are numbered along the last dimension first, and how each dimension is worked on.
struct Grid {
  std::vector<Rank> dims;
  std::vector<Pattern> patterns;  // one a dimension
};

// `order`: the dimensions of each part of the vector, in the order in which its reduce-scatter takes them. all_reduce
// may have several parts, which work at the same time; the others have one. reduce_scatter, all_gather, all_reduce.
Schedule build(std::string_view algorithm, Collective, Rank world, const Grid&,
               const std::vector<std::vector<std::size_t>>& order);

// As many parts as dimensions, part k beginning with dimension k: all dimensions are at work all the time.
Schedule build_rotated(std::string_view algorithm, Collective, Rank world, const std::vector<Rank>& dims,
                       const Pattern& pattern);

// `dims`, or two dimensions as equal as they can be where none are given: a prime makes a line. Throws Error{usage}
// unless they multiply to the world size.
std::vector<Rank> dims_of(std::string_view algorithm, Rank world, std::vector<Rank> dims);

// The smallest divisor of `world` that is at least its square root.
Rank balanced_divisor(Rank world);

}  // namespace ranvier::grid
