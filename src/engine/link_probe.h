// What the links of a world can do, measured by a handful of small collectives when its ranks meet. Measured is what
// collectives then meet as well: all ranks at once, on their own cores, through the same executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "ranvier/communicator.h"
#include "ranvier/cost.h"

namespace ranvier::engine {

// What a transport is like on an ordinary machine: used where nothing is measured, and the scale on which measured
// numbers are rounded.
LinkModel nominal_links(std::string_view transport, bool crowded);

// One operation: how long it took, and what it did.
struct ProbeSample {
  double seconds = 0;  // on the slowest rank
  std::uint32_t rounds = 0;
  RankCost work = {};
};
struct ProbeSamples {
  ProbeSample pairs;      // a tiny vector exchanged between pairs, in several rounds
  ProbeSample everybody;  // the same between all pairs at once, in one
  ProbeSample stored;     // many bytes, …
  ProbeSample added;      // … and as many that were added up
};
// The model by which these samples take as long as they took, though its numbers may come out negative where noise is
// larger than they are. Pure.
LinkModel fit_links(const LinkModel& nominal, const ProbeSamples&);

struct ProbedWorld {
  Rank world = 1;
  std::size_t slice_bytes = 0;
  double least_seconds_per_byte = 0;  // where sending is paced, which a short measurement would not notice
};
// All ranks call it; each gets the same. Takes some tens of operations of up to a MiB, fewer bytes where those would
// take long. `run` runs a collective to its end, with the algorithm that it names, and throws what that fails with.
// Each of the four numbers is the nominal one times a power of two: noise moves a choice only where a number lies
// between two classes, and so float sums come out alike in nearly every run (docs/decisions/0007).
LinkModel measure_links(const LinkModel& nominal, const ProbedWorld&, const std::function<void(const Request&)>& run);

}  // namespace ranvier::engine
