// A data-parallel step: gradients become ready layer by layer from the last to the first, are put into buckets, and the
// buckets are averaged one after another while the backward pass goes on (S. Li et al.: PyTorch distributed:
// Experiences on accelerating data parallel training. VLDB 2020).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ranvier/error.h"
#include "ranvier/simulate.h"

namespace ranvier {
namespace {

constexpr std::size_t element_bytes = 4;

struct Bucket {
  std::string name;
  double ready_ns;
  double bytes;
};

void refuse_divided_models(const Workload& workload) {
  const Degrees& degrees = workload.degrees;
  bool others = degrees.tensor > 1 || degrees.pipeline > 1 || degrees.expert > 1;
  for (const Layer& layer : workload.layers)
    for (const Communication& each : layer.weight_gradient.communications)
      others = others || each.role != Role::data || each.collective != Collective::all_reduce;
  if (others)
    throw Error(ErrorKind::usage,
                fmt::format("workload {} divides its layers; steps are simulated for data parallelism "
                            "alone: write tp=1,pp=1,ep=1 behind its name, or name another one",
                            workload.name));
}

// The all_reduce of so many bytes, rounded up so that all chunks are alike.
SimulatedRun all_reduce(const Schedule& schedule, const Topology& topology, double bytes, SimulateOptions options) {
  const double chunk = std::max(1.0, std::ceil(bytes / element_bytes / schedule.chunks));
  options.trace = false;
  return simulate(schedule, topology, static_cast<std::size_t>(chunk) * schedule.chunks, element_bytes, options);
}

}  // namespace

StepPrediction simulate_step(const Workload& workload, const Topology& topology, const StepSimulation& how) {
  refuse_divided_models(workload);
  StepPrediction result;
  const double slowest =
      how.options.slowdown.empty() ? 1 : *std::max_element(how.options.slowdown.begin(), how.options.slowdown.end());
  double now = 0;
  for (const Layer& layer : workload.layers) now += layer.forward.compute_ns * slowest;
  if (now > 0) result.timeline.push_back({"forward", true, 0, now});
  std::vector<Bucket> buckets;
  double filled = 0;
  for (std::size_t i = workload.layers.size(); i-- > 0;) {
    const Layer& layer = workload.layers[i];
    const double time = (layer.input_gradient.compute_ns + layer.weight_gradient.compute_ns) * slowest;
    if (time > 0) result.timeline.push_back({"backward " + layer.name, true, now, now + time});
    now += time;
    for (const Communication& each : layer.weight_gradient.communications) filled += each.bytes * how.gradient_scale;
    if (filled < how.bucket_bytes && i > 0) continue;
    if (filled > 0) buckets.push_back({fmt::format("bucket {}", buckets.size()), now, filled});
    filled = 0;
  }
  result.compute_ns = now;

  const AlgorithmSpec spec = parse_algorithm(how.algorithm);
  const Schedule schedule =
      find_algorithm(spec.algorithm().name, Collective::all_reduce)
          .build({.collective = Collective::all_reduce, .world = topology.world, .dims = spec.dims});
  std::map<double, SimulatedRun> known;
  double free = 0;
  for (const Bucket& bucket : buckets) {
    auto found = known.find(bucket.bytes);
    if (found == known.end())
      found = known.emplace(bucket.bytes, all_reduce(schedule, topology, bucket.bytes, how.options)).first;
    const SimulatedRun& run = found->second;
    const double begin = std::max(free, bucket.ready_ns);
    const double takes = run.ns + bucket.bytes * how.codec_ns_per_byte;
    free = begin + takes;
    result.communication_ns += takes;
    result.timeline.push_back({bucket.name, false, begin, free});
    if (result.links.empty()) {
      result.links = run.links;
      for (auto& link : result.links) link.utilisation = 0;
    }
    for (std::size_t link = 0; link < run.links.size(); ++link)
      result.links[link].utilisation += run.links[link].utilisation * run.ns;
  }
  result.step_ns = std::max(result.compute_ns, free);
  result.exposed_communication_ns = result.step_ns - result.compute_ns;
  for (auto& link : result.links) link.utilisation = result.step_ns > 0 ? link.utilisation / result.step_ns : 0;
  return result;
}

}  // namespace ranvier
