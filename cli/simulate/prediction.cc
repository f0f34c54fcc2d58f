#include "simulate/prediction.h"

#include <fmt/format.h>

#include "plan/codec_speed.h"
#include "ranvier/error.h"
#include "simulate/workload.h"

namespace ranvier::simulation {
Training training_of(const Options& options) {
  if (options.bytes > 0) return {};
  Training training{.workload = load_workload(options.workload)};
  if (!options.compress.empty()) training.codec = planning::measure_codec(options.compress);
  return training;
}

Operation all_reduce_of(const Options& options, const std::string& algorithm, Rank world) {
  const auto built = [&] {
    if (algorithm == in_network) return summed_by_switches(world);
    const AlgorithmSpec spec = parse_algorithm(algorithm);
    return spec.algorithm().build({.collective = Collective::all_reduce, .world = world, .dims = spec.dims});
  };
  Schedule schedule = built();
  // Rounded up to whole chunks, as the buckets of a step are: ranks of even worlds then do the same.
  const std::size_t values = (options.bytes + 3) / 4;
  const std::size_t chunk = (values + schedule.chunks - 1) / schedule.chunks;
  const std::size_t count = chunk * schedule.chunks;
  return {.schedule = std::move(schedule), .count = count};
}

Prediction predict(const Options& options, const Training& training, const Topology& topology) {
  const Rank world = topology.world;
  StepSimulation how = options.step;
  how.options.trace = !options.trace_file.empty();
  if (options.straggler) {
    if (options.straggler->first >= world)
      throw Error(ErrorKind::usage,
                  fmt::format("--straggler names rank {} of {} ranks", options.straggler->first, world));
    how.options.slowdown.assign(static_cast<std::size_t>(world), 1);
    how.options.slowdown[static_cast<std::size_t>(options.straggler->first)] = options.straggler->second;
  }
  if (options.bytes == 0) {
    how = with_codec(how, training.codec, world);
    Prediction result{.world = world, .step = simulate_step(training.workload, topology, how)};
    if (options.sync.empty()) return result;
    const auto policy =
        make_sync_policy(options.sync, {.steps_per_epoch = 0, .steps = 0, .world = static_cast<std::uint64_t>(world)});
    result.policy = simulate_policy(*policy, training.workload, topology, how, options.steps, options.unequal);
    return result;
  }
  const Operation operation = all_reduce_of(options, how.algorithm, world);
  const SimulatedRun run = simulate(operation.schedule, topology, operation.count, 4, how.options);
  return {.world = world, .step = step_of(run), .folded = run.folded, .messages = run.trace};
}

}  // namespace ranvier::simulation
