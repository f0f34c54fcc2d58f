// How to communicate: which algorithm, bucket and codec make a step the shortest on a network, found by simulating all
// of them, and which algorithm is the fastest at which size.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ranvier/simulate.h"
#include "ranvier/topology.h"
#include "ranvier/workload.h"

namespace ranvier {

// What a codec makes of a gradient, as measured on this machine.
struct CodecSpeed {
  std::string spec = {};          // empty: no codec
  double wire_bytes = 1;          // per byte of gradient
  double encode_ns_per_byte = 0;  // of gradient
  double decode_ns_per_byte = 0;
  bool summable = true;  // codes are all-reduced as they are; else each rank owns a part, which all send it and get
                         // back (coded_exchange): the pattern of the algorithm `direct`
};

// The same step with compressed gradients; its buckets are of so many bytes of gradient.
StepSimulation with_codec(StepSimulation how, const CodecSpeed&, Rank world);

struct PlanSearch {
  std::vector<std::string> algorithms = {};  // as parse_algorithm takes them
  // The fastest of them by size (fastest_algorithms), as a further choice.
  std::vector<FastestAlgorithm> by_size = {};
  std::vector<double> bucket_bytes = {1e6, 5e6, 25e6, 100e6, 1e18};
  std::vector<CodecSpeed> codecs = {{}};
  SimulateOptions options = {};
};

inline constexpr std::string_view by_size = "by_size";

struct PlanChoice {
  std::string algorithm;  // by_size: that of PlanSearch::by_size
  double bucket_bytes = 0;
  std::string codec;
  StepPrediction step;
};

// All combinations, the shortest step first; of equal ones the plainest (no codec, then the earlier in the lists). What
// an algorithm cannot do in this world, or takes simulating too many unlike ranks, is left out. Throws Error{usage}
// where nothing is left.
std::vector<PlanChoice> rank_plans(const Workload&, const Topology&, const PlanSearch&);

// For sizes that double from 4 bytes to `most_bytes`: the fastest algorithm up to each size at which it changes; the
// last one is for all beyond.
std::vector<FastestAlgorithm> fastest_algorithms(const Topology&, const std::vector<std::string>& algorithms,
                                                 std::size_t most_bytes, const SimulateOptions& = {});

}  // namespace ranvier
