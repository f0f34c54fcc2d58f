// ranvier simulate: a training step, or one all_reduce, on a network that need not be there.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "machine.h"
#include "output.h"
#include "plan/codec_speed.h"
#include "ranvier/error.h"
#include "ranvier/plan.h"
#include "ranvier/simulate.h"
#include "ranvier/text.h"
#include "simulate/options.h"
#include "simulate/trace.h"
#include "simulate/workload.h"

namespace ranvier::cli {
namespace {

using nlohmann::json;
using simulation::Options;

// Beyond it more ranks are mostly there to wait for each other.
constexpr double worthwhile_efficiency = 0.8;

constexpr std::uint64_t steps_of_a_policy = 10'000;

struct Prediction {
  Rank world;
  StepPrediction step = {};
  std::optional<PolicyPrediction> policy = {};
  bool folded = false;
  std::vector<SimulatedMessage> messages = {};
};

// What one run knows of its workload: read and measured once, whatever the number of worlds.
struct Training {
  Workload workload = {};
  CodecSpeed codec = {};
};

Training training_of(const Options& options) {
  if (options.bytes > 0) return {};
  Training training{.workload = simulation::load_workload(options.workload)};
  if (!options.compress.empty()) training.codec = planning::measure_codec(options.compress);
  return training;
}

Prediction predict(const Options& options, const Training& training, Rank world) {
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
  if (options.bytes == 0) {
    how = with_codec(how, training.codec, world);
    Prediction result{.world = world, .step = simulate_step(training.workload, topology, how)};
    if (options.sync.empty()) return result;
    const auto policy = make_sync_policy(options.sync, {.steps_per_epoch = 0, .steps = 0});
    result.policy = simulate_policy(*policy, training.workload, topology, how, steps_of_a_policy);
    return result;
  }

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
  json roles = json::array();
  for (const auto& role : prediction.step.roles)
    roles.push_back(
        {{"role", role.role}, {"communication_ns", role.communication_ns}, {"exposed_ns", role.exposed_ns}});
  json path = json::array();
  for (const std::size_t number : prediction.step.critical_path) {
    const auto& interval = prediction.step.timeline[number];
    path.push_back({{"name", interval.name}, {"begin_ns", interval.begin_ns}, {"end_ns", interval.end_ns}});
  }
  return {{"world", prediction.world},
          {"step_ns", prediction.step.step_ns},
          {"compute_ns", prediction.step.compute_ns},
          {"communication_ns", prediction.step.communication_ns},
          {"exposed_communication_ns", prediction.step.exposed_communication_ns},
          {"roles", roles},
          {"critical_path", path},
          {"links", links}};
}

void print_policy(const std::string& sync, const PolicyPrediction& policy) {
  fmt::print("{:>8} by {}: {:.4f} ms a step in the mean, {:.4f} of them exposed, {:.3g} rounds a step\n", "", sync,
             policy.step_ns / 1e6, policy.exposed_communication_ns / 1e6, policy.rounds_per_step);
}

void print_failures(const StepWithFailures& lasting) {
  fmt::print("{:>8} with failures {:.4f} ms for a step that counts, {:.2f} % of the time lost{}\n", "",
             lasting.step_ns / 1e6, lasting.lost_share * 100,
             lasting.checkpoint_interval_s > 0
                 ? fmt::format("; a checkpoint every {:.0f} s is best", lasting.checkpoint_interval_s)
                 : "");
}

// The groups that communicate, and what the end of the step waits for.
void print_details(const StepPrediction& step) {
  for (const auto& role : step.roles)
    fmt::print("{} groups communicate for {:.4f} ms, {:.4f} of them exposed\n", role.role, role.communication_ns / 1e6,
               role.exposed_ns / 1e6);
  if (step.critical_path.empty()) return;
  double waits = 0;
  for (const std::size_t number : step.critical_path)
    if (const auto& each = step.timeline[number]; !each.computes) waits += each.end_ns - each.begin_ns;
  const auto& last = step.timeline[step.critical_path.back()];
  fmt::print("critical path: {} intervals, {:.1f} % of the step communication; it ends with {}\n",
             step.critical_path.size(), waits / step.step_ns * 100, last.name);
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
  const Training training = training_of(*options);
  json worlds = json::array();
  std::optional<Rank> knee;
  for (const Rank world : options->worlds) {
    const Prediction prediction = predict(*options, training, world);
    const StepPrediction& step = prediction.step;
    if (options->bytes == 0 && efficiency(step) >= worthwhile_efficiency) knee = world;
    if (prints)
      fmt::print("{:>8} {:>12.4f} {:>12.4f} {:>12.4f} {:>12.4f} {:>10.1f}% {:>9.1f}%\n", world, step.step_ns / 1e6,
                 step.compute_ns / 1e6, step.communication_ns / 1e6, step.exposed_communication_ns / 1e6,
                 efficiency(step) * 100, busiest(step) * 100);
    if (prints && prediction.policy) print_policy(options->sync, *prediction.policy);
    std::fflush(stdout);
    const StepWithFailures lasting = with_failures(step.step_ns, world, options->failures);
    if (prints && options->failures.mtbf_hours > 0) print_failures(lasting);
    worlds.push_back(to_json(prediction));
    if (prediction.policy)
      worlds.back()["sync"] = {{"spec", options->sync},
                               {"step_ns", prediction.policy->step_ns},
                               {"exposed_communication_ns", prediction.policy->exposed_communication_ns},
                               {"rounds_per_step", prediction.policy->rounds_per_step}};
    if (options->failures.mtbf_hours > 0)
      worlds.back().update({{"step_with_failures_ns", lasting.step_ns},
                            {"lost_share", lasting.lost_share},
                            {"checkpoint_interval_s", lasting.checkpoint_interval_s}});
    if (options->worlds.size() > 1) continue;
    if (prints) print_details(step);
    trace.write(simulation::trace_json(step, prediction.messages).dump() + '\n');
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
