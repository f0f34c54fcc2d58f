// ranvier simulate: a training step, or one all_reduce, on a network that need not be there.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "machine.h"
#include "output.h"
#include "ranvier/error.h"
#include "ranvier/plan.h"
#include "ranvier/text.h"
#include "simulate/crash.h"
#include "simulate/cut.h"
#include "simulate/failure_rate.h"
#include "simulate/prediction.h"
#include "simulate/trace.h"

namespace ranvier::cli {
namespace {

using nlohmann::json;
using simulation::CutTime;
using simulation::Options;
using simulation::Prediction;
using simulation::Training;

// Beyond it more ranks are mostly there to wait for each other.
constexpr double worthwhile_efficiency = 0.8;

double efficiency(const StepPrediction& step, double step_ns) { return step_ns > 0 ? step.compute_ns / step_ns : 1; }

// In the mean of many, by the policy where one was named.
double mean_step_ns(const Prediction& prediction) {
  return prediction.policy ? prediction.policy->step_ns : prediction.step.step_ns;
}

double busiest(const StepPrediction& step) {
  double most = 0;
  for (const auto& link : step.links) most = std::max(most, link.utilisation);
  return most;
}

json path_of(const StepPrediction& step) {
  json path = json::array();
  for (const std::size_t number : step.critical_path) {
    const auto& interval = step.timeline[number];
    path.push_back({{"name", interval.name}, {"begin_ns", interval.begin_ns}, {"end_ns", interval.end_ns}});
  }
  return path;
}

json to_json(const StepPrediction& step) {
  json links = json::array();
  for (const auto& link : step.links)
    links.push_back({{"from", link.from},
                     {"to", link.to},
                     {"dimension", link.dimension},
                     {"utilisation", link.utilisation},
                     {"exposed_ns", link.exposed_ns},
                     {"hidden_ns", link.hidden_ns}});
  json dimensions = json::array();
  for (const auto& each : step.dimensions)
    dimensions.push_back({{"dimension", each.dimension},
                          {"communication_ns", each.communication_ns},
                          {"exposed_ns", each.exposed_ns},
                          {"hidden_ns", std::max(0.0, each.communication_ns - each.exposed_ns)}});
  json roles = json::array();
  for (const auto& role : step.roles)
    roles.push_back(
        {{"role", role.role}, {"communication_ns", role.communication_ns}, {"exposed_ns", role.exposed_ns}});
  return {{"step_ns", step.step_ns},
          {"compute_ns", step.compute_ns},
          {"idle_ns", step.idle_ns},
          {"communication_ns", step.communication_ns},
          {"exposed_communication_ns", step.exposed_communication_ns},
          {"hidden_communication_ns", std::max(0.0, step.communication_ns - step.exposed_communication_ns)},
          {"codec_ns", step.codec_ns},
          {"exposed_codec_ns", step.exposed_codec_ns},
          {"roles", roles},
          {"dimensions", dimensions},
          {"critical_path", path_of(step)},
          {"links", links}};
}

json utilisation_of(const std::vector<SimulatedLink>& links) {
  json all = json::array();
  for (const auto& link : links)
    all.push_back({{"from", link.from}, {"to", link.to}, {"utilisation", link.utilisation}});
  return all;
}

json to_json(const PolicyPrediction::Servers& servers) {
  return {{"overtaken", servers.overtaken},
          {"most_ahead", servers.most_ahead},
          {"busiest", {{"rank", servers.busiest}, {"busy", servers.busy}}},
          {"groups", servers.groups},
          {"links", utilisation_of(servers.links)}};
}

json to_json(const PolicyPrediction::Peers& peers) {
  return {{"waits_ns", peers.waits_ns},
          {"fastest_share", peers.fastest_share},
          {"busiest", {{"rank", peers.busiest}, {"busy", peers.busy}}},
          {"links", utilisation_of(peers.links)}};
}

json to_json(const Options& options, const PolicyPrediction& policy) {
  json result{{"spec", options.sync},
              {"steps", policy.steps},
              {"step_ns", policy.step_ns},
              {"exposed_communication_ns", policy.exposed_communication_ns},
              {"rounds_per_step", policy.rounds_per_step},
              {"usual_step_ns", policy.usual.step_ns},
              {"between_steps_ns", policy.between_steps_ns},
              {"critical_path", path_of(policy.usual)}};
  if (policy.servers) result["servers"] = to_json(*policy.servers);
  if (policy.peers) result["peers"] = to_json(*policy.peers);
  if (options.policy.unequal.jitter_share > 0) result["seed"] = options.policy.seed;
  if (options.policy.spread) result["assumed_spread"] = *options.policy.spread;
  return result;
}

// By a policy what is known of its steps in the mean, and under "bsp" all of one that averages gradients, as bsp's do.
json to_json(const Options& options, const Prediction& prediction) {
  json result = to_json(prediction.step);
  if (const auto& policy = prediction.policy)
    result = {{"step_ns", policy->step_ns},
              {"compute_ns", prediction.step.compute_ns},
              {"exposed_communication_ns", policy->exposed_communication_ns},
              {"sync", to_json(options, *policy)},
              {"bsp", std::move(result)}};
  result["world"] = prediction.world;
  return result;
}

std::string rates_text(const simulation::NetworkOptions& network) {
  std::string text;
  for (const LinkSpeed& speed : network.speeds()) {
    const double mbit = speed.bytes_per_second * 8e-6;
    if (!text.empty()) text += ", ";
    text += mbit < 1000 ? fmt::format("{:.4g} Mbit/s", mbit) : fmt::format("{:.4g} Gbit/s", mbit / 1000);
  }
  return text;
}

std::string algorithm_text(const StepSimulation& step) {
  if (step.by_size.empty()) return step.algorithm;
  std::string text;
  for (const FastestAlgorithm& row : step.by_size) {
    if (row.up_to == step.by_size.back().up_to) return text + row.algorithm;
    text += fmt::format("{} up to {}, ", row.algorithm, human_bytes(static_cast<double>(row.up_to)));
  }
  return text;
}

void print_heading(const Options& options) {
  fmt::print("# {} on {}, {}, {} links\n{:>8} {:>12} {:>12} {:>12} {:>12} {:>11} {:>10}\n",
             options.bytes > 0 ? human_bytes(static_cast<double>(options.bytes)) : options.workload,
             options.network.spec(), algorithm_text(options.step), rates_text(options.network), "ranks", "step ms",
             "compute ms", "comm ms", "exposed ms", "efficiency", "busiest");
}

void print_policy(const std::string& sync, const PolicyPrediction& policy, double computing) {
  fmt::print(
      "{:>8} by {}: {:.4f} ms a step in the mean, {:.4f} of them exposed, {:.3g} rounds a step, efficiency {:.1f} %\n",
      "", sync, policy.step_ns / 1e6, policy.exposed_communication_ns / 1e6, policy.rounds_per_step, computing * 100);
}

// Dimensions with the link of each that is busiest, and what the codec takes.
void print_split(const StepPrediction& step) {
  for (const auto& each : step.dimensions) {
    const SimulatedLink* most = nullptr;
    for (const auto& link : step.links)
      if (link.dimension == each.dimension && (most == nullptr || link.utilisation > most->utilisation)) most = &link;
    const std::string name = most->from == most->to ? most->from : most->from + " -> " + most->to;
    fmt::print(
        "dimension {} is used for {:.4f} ms, {:.4f} of them exposed; {} is busy for {:.4f}, {:.4f} of them exposed\n",
        each.dimension, each.communication_ns / 1e6, each.exposed_ns / 1e6, name,
        (most->exposed_ns + most->hidden_ns) / 1e6, most->exposed_ns / 1e6);
  }
  if (step.codec_ns > 0)
    fmt::print("the codec takes {:.4f} ms, {:.4f} of them exposed\n", step.codec_ns / 1e6, step.exposed_codec_ns / 1e6);
}

// The groups that communicate, and what the end of the step waits for.
void print_details(const Options& options, const StepPrediction& step) {
  if (step.idle_ns > 0)
    fmt::print("the pipeline fills and drains for {:.4f} ms, in which nothing is computed\n", step.idle_ns / 1e6);
  for (const auto& role : step.roles)
    fmt::print("{}{} communicate for {:.4f} ms, {:.4f} of them exposed\n", role.role, options.by_graph ? "" : " groups",
               role.communication_ns / 1e6, role.exposed_ns / 1e6);
  print_split(step);
  if (step.critical_path.empty()) return;
  double waits = 0;
  for (const std::size_t number : step.critical_path)
    if (const auto& each = step.timeline[number]; !each.computes) waits += each.end_ns - each.begin_ns;
  const auto& last = step.timeline[step.critical_path.back()];
  fmt::print("critical path: {} intervals, {:.1f} % of the step communication; it ends with {}\n",
             step.critical_path.size(), waits / step.step_ns * 100, last.name);
}

void print_servers(const PolicyPrediction::Servers& servers) {
  fmt::print(
      "a push finds in the mean {:.2f} others applied since its worker pulled; no worker began a step more than {} "
      "ahead "
      "of the slowest\nthe server of rank {} is busy with pushes for {:.1f} % of the time\n",
      servers.overtaken, servers.most_ahead, servers.busiest, servers.busy * 100);
}

void print_peers(const PolicyPrediction::Peers& peers) {
  fmt::print(
      "a worker waits {:.4f} ms a step in the mean for the average that it has asked for; the fastest takes "
      "{:.1f} % of all steps\nrank {} is busy averaging with others for {:.1f} % of the time\n",
      peers.waits_ns / 1e6, peers.fastest_share * 100, peers.busiest, peers.busy * 100);
}

// Of the steps that it takes most often, and what comes between them.
void print_policy_details(const Options& options, const PolicyPrediction& policy) {
  if (options.policy.spread)
    fmt::print("assumed: replicas have a spread of {:g} at every average; only training tells\n",
               *options.policy.spread);
  if (policy.servers) return print_servers(*policy.servers);
  if (policy.peers) return print_peers(*policy.peers);
  fmt::print("of a step of {:.4f} ms {}:\n", policy.usual.step_ns / 1e6,
             policy.averages_gradients ? "whose gradients are averaged" : "that averages no gradients, as most are");
  print_details(options, policy.usual);
  if (policy.between_steps_ns > 0)
    fmt::print("averages of parameters between steps add {:.4f} ms a step in the mean\n",
               policy.between_steps_ns / 1e6);
}

// One all_reduce by every algorithm, with and without the cables that were cut.
std::vector<CutTime> cut_times(const Options& options, const Topology& whole, const Topology& left) {
  if (options.cuts.empty() || options.bytes == 0) return {};
  std::vector<std::string> algorithms{options.step.algorithm};
  for (const auto name : simulation::all_reduce_algorithms())
    if (name != options.step.algorithm) algorithms.emplace_back(name);
  return simulation::compare(algorithms, whole, left, [&](const std::string& algorithm, const Topology& topology) {
    Options one = options;
    one.step.algorithm = algorithm;
    return simulation::predict(one, {}, topology).step.step_ns;
  });
}

// Where none was named, and the ranks of the usual one would have to be simulated one by one, which are too many, the
// first one whose ranks are all alike; `options` then name it.
Prediction predict_by_any(Options& options, const Training& training, const Topology& topology) {
  try {
    return simulation::predict(options, training, topology);
  } catch (const Error& error) {
    if (!options.any_algorithm || error.kind() != ErrorKind::usage) throw;
    const std::string usual = options.step.algorithm;
    std::vector<std::string> others{"recursive_doubling", "direct"};
    if (topology.name.starts_with("torus:")) others.insert(others.begin(), topology.name);
    for (const auto& other : others) try {
        options.step.algorithm = other;
        return simulation::predict(options, training, topology);
      } catch (const Error& refusal) {
        if (refusal.kind() != ErrorKind::usage) throw;
      }
    options.step.algorithm = usual;
    throw;
  }
}

// The algorithm that was asked for has to run without them.
void check_runs(const std::vector<CutTime>& times, const std::string& algorithm) {
  std::vector<std::string> run;
  const CutTime* chosen = nullptr;
  for (const CutTime& each : times) {
    if (each.ns) run.push_back(each.algorithm);
    if (each.algorithm == algorithm && !each.ns) chosen = &each;
  }
  if (chosen == nullptr) return;
  throw Error(ErrorKind::usage,
              fmt::format("{}: {}; {}", algorithm, chosen->refusal,
                          run.empty() ? "no algorithm runs" : fmt::format("these run: {}", fmt::join(run, ", "))));
}

// What --crash and --cut ask for beyond the prediction, printed and for --json.
json what_fails(const Options& options, const Training& training, const Topology& whole, const Topology& left,
                const Prediction& prediction, bool prints) {
  json result = json::object();
  if (!options.cuts.empty() && options.bytes == 0) {
    const double whole_ns = simulation::predict(options, training, whole).step.step_ns;
    if (prints) fmt::print("with all cables a step takes {:.4f} ms\n", whole_ns / 1e6);
    result["whole_step_ns"] = whole_ns;
  }
  if (!options.crash) return result;
  const auto after = [&] {
    if (options.bytes == 0) return simulation::after_crash(options, left, prediction.step);
    const auto operation = simulation::all_reduce_of(options, options.step.algorithm, left);
    return simulation::after_crash(options, left, operation.schedule, operation.count);
  }();
  if (prints) simulation::print(after);
  result["crash"] = simulation::to_json(after);
  return result;
}

// Of a range, those that the workload divides and that have the ranks which are named, and why others are left out.
struct Worlds {
  std::vector<Rank> fitting = {};
  std::vector<std::pair<Rank, std::string>> left_out = {};
};

// Throws where none fits. What else one of several cannot be is refused before any is simulated: it would cost all
// before it what was found.
Worlds worlds_of(const Options& options, const Training& training) {
  if (options.worlds.size() == 1) return {.fitting = options.worlds};
  Worlds result;
  for (const Rank world : options.worlds) {
    const Topology topology = options.network.topology(world);
    try {
      simulation::check_straggler(options, world);
      training.trace ? check_world(*training.trace, topology) : check_world(training.workload, world);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) throw;
      result.left_out.emplace_back(world, error.what());
      continue;
    }
    simulation::check_policy(options, training.workload, world);
    result.fitting.push_back(world);
  }
  if (result.fitting.empty()) throw Error(ErrorKind::usage, result.left_out.front().second);
  return result;
}

void print_left_out(const Worlds& worlds) {
  if (worlds.left_out.empty()) return;
  std::vector<Rank> ranks;
  for (const auto& each : worlds.left_out) ranks.push_back(each.first);
  fmt::print("# left out: {} ranks; {}\n", fmt::join(ranks, ", "), worlds.left_out.front().second);
}

}  // namespace

int run_simulate(const Arguments& arguments) {
  const auto options = simulation::parse_options(arguments);
  if (!options) return 0;
  const JsonFile file(options->json_file);
  const ResultFile trace(options->trace_file, "--trace");
  const bool prints = options->json_file != "-";
  const Training training = simulation::training_of(*options);
  const Worlds all = worlds_of(*options, training);
  if (prints) print_left_out(all);
  json worlds = json::array();
  std::optional<Rank> knee;
  json ended;  // why a scan did, before its last world
  for (const Rank world : all.fitting) try {
      Topology whole = options->network.topology(world);
      if (!options->placement.empty()) whole = with_placement(whole, options->placement);
      const Topology left = simulation::without(whole, options->cuts);
      const auto cut = cut_times(*options, whole, left);
      check_runs(cut, options->step.algorithm);
      Options by_any = *options;
      const Prediction prediction = predict_by_any(by_any, training, left);
      if (prints && worlds.empty()) print_heading(by_any);
      const bool by_another = by_any.step.algorithm != options->step.algorithm;
      if (prints && by_another)
        fmt::print(
            "# {} ranks by {}: by {}, the default, they are not alike, and too many to be simulated one by one\n",
            world, by_any.step.algorithm, options->step.algorithm);
      const std::size_t asked_slice = by_any.step.options.slice_bytes;
      const bool by_other_slices = prediction.slice_bytes > 0 && prediction.slice_bytes != asked_slice;
      if (prints && by_other_slices)
        fmt::print(
            "# {} ranks in slices of {} bytes: in those of {} they are not alike, and too many to be simulated "
            "one by one\n",
            world, prediction.slice_bytes, asked_slice);
      const StepPrediction& step = prediction.step;
      const double mean_ns = mean_step_ns(prediction);
      if (prints)
        fmt::print("{:>8} {:>12.4f} {:>12.4f} {:>12.4f} {:>12.4f} {:>10.1f}% {:>9.1f}%\n", world, step.step_ns / 1e6,
                   step.compute_ns / 1e6, step.communication_ns / 1e6, step.exposed_communication_ns / 1e6,
                   efficiency(step, step.step_ns) * 100, busiest(step) * 100);
      if (prints && prediction.policy) print_policy(options->sync, *prediction.policy, efficiency(step, mean_ns));
      std::fflush(stdout);
      json row = to_json(*options, prediction);
      if (options->planned_ns > 0) {
        if (prints) fmt::print("{:>8} the plan expects {:.4f} ms a step\n", "", options->planned_ns / 1e6);
        row["planned_step_ns"] = options->planned_ns;
        // Not by the speeds that it names, which this predicts by.
        if (prints && !options->measured.empty())
          fmt::print("{:>8} since it was made again by what was measured: {}\n", "", options->measured);
        if (!options->measured.empty()) row["planned_by"] = options->measured;
      }
      if (by_another) row["algorithm"] = by_any.step.algorithm;
      if (by_other_slices) row["slice_bytes"] = prediction.slice_bytes;
      if (options->failures.mtbf_hours > 0) {
        const auto rate = simulation::failure_rate(mean_ns, world, options->failures);
        if (prints) simulation::print(rate);
        row.update(simulation::to_json(rate));
      }
      if (options->worlds.size() == 1) {
        if (prints && prediction.policy)
          print_policy_details(*options, *prediction.policy);
        else if (prints)
          print_details(*options, step);
        if (!cut.empty()) {
          if (prints) simulation::print(cut);
          row["algorithms"] = simulation::to_json(cut);
        }
        row.update(what_fails(*options, training, whole, left, prediction, prints));
        trace.write(simulation::trace_json(step, prediction.messages)
                        .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
                    '\n');
      }
      // Last: a world of which something throws has no result.
      worlds.push_back(std::move(row));
      if (options->bytes == 0 && efficiency(step, mean_ns) >= worthwhile_efficiency) knee = world;
    } catch (const Error& error) {
      if (worlds.empty()) throw;
      if (prints) fmt::print("ended before {} ranks: {}\n", world, error.what());
      ended = {{"world", world}, {"why", error.what()}};
      break;
    }
  const bool scans = options->bytes == 0 && options->worlds.size() > 1;
  if (prints && scans) {
    if (!knee)
      fmt::print("knee: none; even {} ranks compute for less than {:.0f} % of the step\n", all.fitting.front(),
                 worthwhile_efficiency * 100);
    else
      fmt::print("knee: up to {} ranks compute for {:.0f} % of the step or more\n", *knee, worthwhile_efficiency * 100);
  }
  json result = worlds.back();
  if (options->worlds.size() > 1) result["worlds"] = worlds;
  if (scans) result["knee"] = knee ? json(*knee) : json();
  for (const auto& [world, why] : all.left_out) result["left_out"].push_back({{"world", world}, {"why", why}});
  if (!ended.is_null()) result["ended"] = ended;
  if (const MeasuredLink* lossy = options->network.most_lossy()) {
    if (prints) fmt::print("loss: {}\n", simulation::loss_text(*lossy));
    result["loss"] = {{"from", lossy->from}, {"to", lossy->to}, {"share", lossy->loss}};
  }
  result["environment"] = environment();
  file.write(result);
  return 0;
}

}  // namespace ranvier::cli
