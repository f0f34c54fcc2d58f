#include "simulate/prediction.h"

#include <fmt/format.h>

#include "plan/codec_speed.h"
#include "ranvier/error.h"
#include "ranvier/workload_file.h"
#include "simulate/levels.h"
#include "simulate/workload.h"

namespace ranvier::simulation {
namespace {

std::vector<std::vector<int>> levels_of(const Options& options, Rank replicas) {
  return simulation::levels_of(*policy_of(options, replicas), options.place, replicas);
}

}  // namespace

void check_straggler(const Options& options, Rank world) {
  if (options.straggler && options.straggler->first >= world)
    throw Error(ErrorKind::usage,
                fmt::format("--straggler names rank {} of {} ranks", options.straggler->first, world));
}

SimulateOptions transfers_of(const Options& options, Rank world) {
  check_straggler(options, world);
  SimulateOptions transfers = options.step.options;
  if (options.straggler) {
    transfers.slowdown.assign(static_cast<std::size_t>(world), 1);
    transfers.slowdown[static_cast<std::size_t>(options.straggler->first)] = options.straggler->second;
  }
  return transfers;
}

void check_policy(const Options& options, const Workload& workload, Rank world) {
  if (options.sync.empty()) return;
  check_replicas(workload, world, options.policy.unequal);
  if (const Rank replicas = replicas_in(workload, world); replicas > 0) (void)levels_of(options, replicas);
}

Training training_of(const Options& options) {
  if (options.bytes > 0) return {};
  if (options.by_graph) return {.trace = load_trace(options.workload, options.communicator_file)};
  Training training{.workload = load_workload(options.workload, options.communicator_file, options.network.spec())};
  if (!options.compress.empty()) training.codec = planning::measure_codec(options.compress);
  return training;
}

Operation all_reduce_of(const Options& options, const std::string& algorithm, const Topology& topology) {
  const auto built = [&]() -> SwitchSum {
    if (algorithm == in_network)
      return summed_by_switches(topology, static_cast<double>(options.bytes), options.step.options.slice_bytes);
    const AlgorithmSpec spec = parse_algorithm(algorithm);
    return {spec.algorithm().build({.collective = Collective::all_reduce, .world = topology.world, .dims = spec.dims}),
            topology};
  };
  auto [schedule, network] = built();
  // Rounded up to whole chunks, as the buckets of a step are: ranks of even worlds then do the same.
  const std::size_t values = (options.bytes + 3) / 4;
  const std::size_t chunk = (values + schedule.chunks - 1) / schedule.chunks;
  const std::size_t count = chunk * schedule.chunks;
  return {.schedule = std::move(schedule), .count = count, .topology = std::move(network)};
}

Prediction predict(const Options& options, const Training& training, const Topology& topology) {
  const Rank world = topology.world;
  StepSimulation how = options.step;
  how.options = transfers_of(options, world);
  how.options.trace = !options.trace_file.empty();
  if (training.trace) return {.world = world, .step = simulate_step(*training.trace, topology, how)};
  if (options.bytes == 0) {
    const Workload workload = rescaled(training.workload, world);
    check_world(workload, world);
    how = with_codec(how, training.codec, averaging_ranks(workload, world));
    Prediction result{.world = world, .step = simulate_step(workload, topology, how)};
    if (options.sync.empty()) return result;
    const Rank replicas = replicas_in(workload, world);
    PolicySimulation simulation = options.policy;
    simulation.levels = levels_of(options, replicas);
    if (how.gradient_scale != 1) {
      simulation.inside = options.step;
      simulation.inside->options = how.options;
    }
    result.policy = simulate_policy(*policy_of(options, replicas), workload, topology, how, simulation);
    return result;
  }
  const Operation operation = all_reduce_of(options, how.algorithm, topology);
  const SimulatedRun run = simulate(operation.schedule, operation.topology, operation.count, 4, how.options);
  return {.world = world, .step = step_of(run), .slice_bytes = run.slice_bytes, .messages = run.trace};
}

}  // namespace ranvier::simulation
