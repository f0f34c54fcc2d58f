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
  std::string spec = {};   // empty: no codec
  double wire_bytes = 1;   // per byte of gradient
  double ns_per_byte = 0;  // to encode and decode, per byte of gradient
};

struct PlanSearch {
  std::vector<std::string> algorithms = {};  // as parse_algorithm takes them
  std::vector<double> bucket_bytes = {1e6, 5e6, 25e6, 100e6, 1e18};
  std::vector<CodecSpeed> codecs = {{}};
  SimulateOptions options = {};
};

struct PlanChoice {
  std::string algorithm;
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
struct FastestAlgorithm {
  std::size_t up_to;
  std::string algorithm;
  double ns;  // of the largest size that was simulated
};
std::vector<FastestAlgorithm> fastest_algorithms(const Topology&, const std::vector<std::string>& algorithms,
                                                 std::size_t most_bytes, const SimulateOptions& = {});

}  // namespace ranvier
