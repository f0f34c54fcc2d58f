// ranvier simulate: a training step, or one all_reduce, on a network that need not be there.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "machine.h"
#include "output.h"
#include "ranvier/error.h"
#include "ranvier/simulate.h"
#include "ranvier/text.h"
#include "simulate/options.h"
#include "simulate/trace.h"

namespace ranvier::cli {
namespace {

using nlohmann::json;
using simulation::Options;

// Beyond it more ranks are mostly there to wait for each other.
constexpr double worthwhile_efficiency = 0.8;

struct Prediction {
  Rank world;
  StepPrediction step = {};
  bool folded = false;
  std::vector<SimulatedMessage> messages = {};
};

Prediction predict(const Options& options, Rank world) {
  const Topology topology = options.network.topology(world);
  StepSimulation how = options.step;
  how.options.trace = !options.trace_file.empty();
  if (options.straggler) {
    if (options.straggler->first >= world)
      throw Error(ErrorKind::usage,
                  fmt::format("--straggler names rank {} of {} ranks", options.straggler->first, world));
    how.options.slowdown.assign(static_cast<std::size_t>(world), 1);
    how.options.slowdown[static_cast<std::size_t>(options.straggler->first)] = options.straggler->second;
  }
  if (options.bytes == 0)
    return {.world = world, .step = simulate_step(make_workload(options.workload), topology, how)};

  const AlgorithmSpec spec = parse_algorithm(how.algorithm);
  const Schedule schedule =
      spec.algorithm().build({.collective = Collective::all_reduce, .world = world, .dims = spec.dims});
  // Rounded up to whole chunks, as the buckets of a step are: ranks of even worlds then do the same.
  const std::size_t values = (options.bytes + 3) / 4;
  const std::size_t chunk = (values + schedule.chunks - 1) / schedule.chunks;
  const SimulatedRun run = simulate(schedule, topology, chunk * schedule.chunks, 4, how.options);
  Prediction result{.world = world, .step = {.step_ns = run.ns, .communication_ns = run.ns}, .folded = run.folded};
  result.step.exposed_communication_ns = run.ns;
  result.step.links = run.links;
  result.messages = run.trace;
  return result;
}

double efficiency(const StepPrediction& step) { return step.step_ns > 0 ? step.compute_ns / step.step_ns : 1; }

double busiest(const StepPrediction& step) {
  double most = 0;
  for (const auto& link : step.links) most = std::max(most, link.utilisation);
  return most;
}

json to_json(const Prediction& prediction) {
  json links = json::array();
  for (const auto& link : prediction.step.links)
    links.push_back({{"from", link.from}, {"to", link.to}, {"utilisation", link.utilisation}});
  return {{"world", prediction.world},
          {"step_ns", prediction.step.step_ns},
          {"compute_ns", prediction.step.compute_ns},
          {"communication_ns", prediction.step.communication_ns},
          {"exposed_communication_ns", prediction.step.exposed_communication_ns},
          {"links", links}};
}

}  // namespace

int run_simulate(const Arguments& arguments) {
  const auto options = simulation::parse_options(arguments);
  if (!options) return 0;
  const JsonFile file(options->json_file);
  const ResultFile trace(options->trace_file, "--trace");
  const bool prints = options->json_file != "-";
  if (prints)
    fmt::print("# {} on {}, {}, {}/s links\n{:>8} {:>12} {:>12} {:>12} {:>12} {:>11} {:>10}\n",
               options->bytes > 0 ? human_bytes(static_cast<double>(options->bytes)) : options->workload,
               options->network.spec(), options->step.algorithm, human_bytes(options->network.bytes_per_second()),
               "ranks", "step ms", "compute ms", "comm ms", "exposed ms", "efficiency", "busiest");
  json worlds = json::array();
  std::optional<Rank> knee;
  for (const Rank world : options->worlds) {
    const Prediction prediction = predict(*options, world);
    const StepPrediction& step = prediction.step;
    if (options->bytes == 0 && efficiency(step) >= worthwhile_efficiency) knee = world;
    if (prints)
      fmt::print("{:>8} {:>12.4f} {:>12.4f} {:>12.4f} {:>12.4f} {:>10.1f}% {:>9.1f}%\n", world, step.step_ns / 1e6,
                 step.compute_ns / 1e6, step.communication_ns / 1e6, step.exposed_communication_ns / 1e6,
                 efficiency(step) * 100, busiest(step) * 100);
    std::fflush(stdout);
    worlds.push_back(to_json(prediction));
    if (options->worlds.size() == 1) trace.write(simulation::trace_json(step, prediction.messages).dump() + '\n');
  }
  if (prints && options->bytes == 0 && options->worlds.size() > 1) {
    if (!knee)
      fmt::print("knee: none; even {} ranks wait for the network for more than {:.0f} % of the step\n",
                 options->worlds.front(), (1 - worthwhile_efficiency) * 100);
    else
      fmt::print("knee: up to {} ranks compute for {:.0f} % of the step or more\n", *knee, worthwhile_efficiency * 100);
  }
  json result = worlds.size() == 1 ? worlds[0] : worlds.back();
  if (worlds.size() > 1) result["worlds"] = worlds;
  if (knee) result["knee"] = *knee;
  result["environment"] = environment();
  file.write(result);
  return 0;
}

}  // namespace ranvier::cli
