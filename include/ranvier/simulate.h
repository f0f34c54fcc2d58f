// How long a schedule takes on a network, by simulating the compiled programs that would run there: links with latency
// and bandwidth that the messages on them share fairly.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ranvier/schedule.h"
#include "ranvier/topology.h"
#include "ranvier/workload.h"

namespace ranvier {

struct SimulateOptions {
  std::size_t slice_bytes = 1 << 17;  // as CompileOptions
  std::size_t buffered_slices = 2;    // that a link takes before its sender waits
  double message_ns = 0;              // what each message costs beside the latency of its links
  double reduce_bytes_per_ns = 0;     // how fast a rank reduces what arrives; 0: as fast as it arrives
  std::vector<double> slowdown = {};  // by rank: how many times slower it reduces and its links are; empty: 1
  bool fold = true;                   // ranks that do the same are simulated once
  bool trace = false;
};

// A message on its way, from its first byte into the network to its arrival.
struct SimulatedMessage {
  Rank from = 0;
  Rank to = 0;
  std::uint32_t round = 0;
  double begin_ns = 0;
  double end_ns = 0;
  std::size_t bytes = 0;
};

struct SimulatedLink {
  std::string from = {};
  std::string to = {};
  double utilisation = 0;  // bytes carried / (time x bandwidth)
};

struct SimulatedRun {
  double ns = 0;
  bool folded = false;
  std::size_t messages = 0;                  // simulated; folded ones stand for one of each rank
  std::vector<SimulatedLink> links = {};     // folded: one for each kind of link
  std::vector<SimulatedMessage> trace = {};  // folded: those of rank 0
};

// `count` elements as even_layout counts them, of element_bytes each, not in place. Folding needs a network and a
// schedule that look the same from every rank (rings, tori and stars do); it is looked for, and proven for worlds up to
// 256, beyond that on ranks all over the world. Throws Error{usage} for other worlds than 1 to 2^20, and for more than
// 1024 ranks where nothing can be folded.
SimulatedRun simulate(const Schedule&, const Topology&, std::size_t count, std::size_t element_bytes,
                      const SimulateOptions& = {});

// ---- A step of data-parallel training.

struct StepPrediction {
  double step_ns = 0;
  double compute_ns = 0;
  double communication_ns = 0;            // of all buckets, one after another
  double exposed_communication_ns = 0;    // what of it computing does not hide
  std::vector<SimulatedLink> links = {};  // over the whole step
  struct Interval {
    std::string name = {};
    bool computes = false;
    double begin_ns = 0;
    double end_ns = 0;
  };
  std::vector<Interval> timeline = {};
};

struct StepSimulation {
  std::string algorithm = "ring";  // as parse_algorithm takes it
  double bucket_bytes = 25e6;      // gradients go together up to this size, in the order they become ready
  double gradient_scale = 1;       // bytes on the wire per byte of gradient
  double codec_ns_per_byte = 0;    // to encode and decode a byte of the wire, while the link waits
  SimulateOptions options = {};
};

// Gradients are averaged bucket by bucket while the backward pass goes on, one bucket at a time, as PyTorch's
// DistributedDataParallel does. Throws Error{usage} for a workload that divides more than its data.
StepPrediction simulate_step(const Workload&, const Topology&, const StepSimulation& = {});

}  // namespace ranvier
