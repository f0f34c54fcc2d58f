#include "plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "plan/codec_speed.h"
#include "plan/words.h"
#include "ranvier/error.h"
#include "ranvier/synchronizer.h"
#include "ranvier/tuning.h"
#include "ranvier/workload_file.h"
#include "simulate/levels.h"
#include "simulate/workload.h"

namespace ranvier::planning {
namespace {

constexpr Rank most_placed_ranks = 32;
// On a star, where enough algorithms have ranks that all do the same: what has not takes minutes to simulate beyond.
constexpr Rank most_unlike_ranks = 128;

// Of the limit, until when the fastest algorithms by size are to be known; the rest is for the search. Each ends a
// little behind its time, by a moment of the simulation.
constexpr double share_of_sizes = 0.7;

// Up to the size of all gradients, within reason: what is longer takes the same algorithm.
std::size_t most_bytes_of_a_table(double gradients) {
  return std::bit_ceil(static_cast<std::size_t>(std::clamp(gradients, 1e6, 64e6)));
}

double most_gradient_bytes(const Question& question) {
  double most = 0;
  for (const Workload& each : question.divisions) most = std::max(most, gradient_bytes(each));
  return most;
}

// Sizes that grow four- or fivefold, and all gradients at once: more buckets than that cost more than they hide.
std::vector<double> bucket_sizes(double bytes) {
  constexpr double least = 64e3;
  constexpr double most = 200e6;
  std::vector<double> sizes;
  for (double size = least; size < std::min(bytes, most); size *= size < 1e6 ? 4 : 5) sizes.push_back(size);
  sizes.push_back(1e18);
  return sizes;
}

Plan plan_of(const Question& question, const PlanChoice& best) {
  const PlanNetwork& network = question.networks[best.network];
  Plan plan{.workload = question.names[best.division], .network = question.network_names[best.network]};
  if (!question.is_measured) {
    plan.link_gbit = question.speed.bytes_per_second * 8e-9;
    plan.latency_us = static_cast<double>(question.speed.latency.count()) / 1000;
  }
  plan.ranks = network.topology.world;
  plan.transport = network.transport;
  plan.sync = best.sync;
  plan.unequal = question.search.unequal;
  const auto policy = make_sync_policy(best.sync, {});
  if (policy->levels().size() > 1) plan.place = simulation::place_for(*policy, question.place);
  plan.placement = network.placement;
  if (!best.codec.empty()) plan.compress = best.codec;
  // Of a trace that is taken as layers all groups are of all ranks.
  if (question.trace || !names_a_trace(plan.workload)) plan.communicator = question.communicator;
  if (!question.trace) {
    const double gradients = gradient_bytes(question.divisions[best.division]);
    plan.bucket_bytes = static_cast<std::size_t>(std::max(1.0, std::min(best.bucket_bytes, gradients)));
  }
  // Codes that cannot be added do not take an all_reduce; what else there is (losses) takes the fastest of its size.
  const bool codes_are_added = std::ranges::find(question.search.codecs, best.codec, &CodecSpeed::spec)->summable;
  plan.all_reduce = network.by_size;
  if (best.algorithm != by_size && codes_are_added)
    plan.all_reduce = {{.up_to = TuningRow::max, .algorithm = best.algorithm}};
  plan.step_ns = best.step_ns;
  plan.compute_ns = best.step.compute_ns + best.step.idle_ns;
  plan.exposed_communication_ns = best.step.exposed_communication_ns;
  return plan;
}

bool goes_by(const SyncPolicy& policy, const std::string& codec) {
  try {
    check_compress(policy, codec);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Averages among everybody may be taken for those of gradients, in layers; all else is what its own graph says.
bool is_of_replicas(const ExecutionTrace& trace, Rank world) {
  return std::ranges::all_of(trace.operations, [&](const Operation& each) {
    if (!each.communication) return true;
    const Collective what = each.communication->collective;
    if (what == Collective::send || what == Collective::recv) return false;
    const auto group = trace.process_groups.find(each.process_group);
    if (group != trace.process_groups.end())
      return group->second.empty() || group->second.size() == static_cast<std::size_t>(world);
    return each.process_group == "0" || (each.process_group.empty() && std::ranges::count(each.dimensions, false) == 0);
  });
}

// Of what all ranks or some of them add up.
double most_summed_bytes(const ExecutionTrace& trace) {
  double most = 0;
  for (const Operation& each : trace.operations)
    if (each.communication && each.communication->collective == Collective::all_reduce)
      most = std::max(most, each.communication->bytes);
  return most;
}

bool names_dimensions(const ExecutionTrace& trace) {
  return std::ranges::any_of(trace.operations, [](const Operation& each) { return !each.dimensions.empty(); });
}

// The trace, where nothing but that tells what a step does.
std::optional<ExecutionTrace> trace_of(const Options& options) {
  if (!names_a_trace(options.workload)) return std::nullopt;
  ExecutionTrace trace = simulation::load_trace(options.workload, options.communicator_file);
  if (is_of_replicas(trace, options.world)) return std::nullopt;
  if (!options.gradients_flag.empty())
    throw Error(ErrorKind::usage,
                fmt::format("{} is of gradients that replicas average, which {} does not tell from all else that its "
                            "groups send; leave it out, or record the step with ranvier train --record",
                            options.gradients_flag, options.workload));
  return trace;
}

}  // namespace

double gradient_bytes(const Workload& workload) {
  double bytes = 0;
  for (const Layer& layer : workload.layers)
    for (const Communication& each : layer.weight_gradient.communications) bytes += each.bytes;
  return bytes;
}

Question question_of(const Options& options, Budget& budget) {
  Question question;
  const bool is_ready_made =
      std::ranges::count(workload_names(), options.workload.substr(0, options.workload.find(':'))) > 0;
  question.names = {options.workload};
  if (is_ready_made) question.names = divisions(options.workload, options.world, options.memory_bytes);
  if (options.unequal.any() && question.names.size() > 1)
    throw Error(ErrorKind::usage,
                fmt::format("--speeds, --jitter and --straggle are of replicas, and {} may be divided "
                            "into different ones; name its degrees, as {}",
                            options.workload, question.names.front()));
  question.trace = trace_of(options);
  question.communicator = options.communicator_file;
  if (!question.trace) {
    for (const auto& name : question.names)
      question.divisions.push_back(
          rescaled(simulation::load_workload(name, options.communicator_file, options.network.spec(0)), options.world));
    check_world(question.divisions.front(), options.world);
    if (options.workload.ends_with(".toml"))  // traces and text do not tell gradients from all else
      check_memory(options.workload, question.divisions.front(), sizeof(float), options.memory_bytes);
    check_replicas(question.divisions.front(), options.world, options.unequal);
  }
  for (std::size_t i = 0; i < options.network.count(); ++i) {
    std::string transport = options.network.measured_transport(i);
    if (!options.transport.empty()) transport = options.transport;
    if (transport.empty()) transport = "tcp";
    PlanNetwork network{.transport = std::move(transport),
                        .topology = options.network.topology(options.world, i),
                        .options = options.network.transfers(i)};
    network.options.most_messages = 0;  // of many that are not alike, which takes seconds for each size
    if (!options.network.is_measured() && network.topology.switches == 1)
      network.options.most_whole = most_unlike_ranks;
    // Ranks that stand elsewhere are no longer alike, so that each is simulated: too long for many of them.
    // A trace that names dimensions of the network means those.
    const bool is_small = options.world <= most_placed_ranks && !(question.trace && names_dimensions(*question.trace));
    const auto near = is_small ? near_placement(network.topology) : std::nullopt;
    const MeasuredLink* lossy = options.network.most_lossy(i);
    const std::string loss = lossy == nullptr ? "" : simulation::loss_text(*lossy);
    question.networks.push_back(network);
    question.network_names.push_back(options.network.spec(i));
    question.losses.push_back(loss);
    if (!near) continue;
    network.topology = with_placement(network.topology, *near);
    network.placement = *near;
    question.networks.push_back(std::move(network));
    question.network_names.push_back(options.network.spec(i));
    question.losses.push_back(loss);
  }
  question.speed = options.network.speed();
  question.is_measured = options.network.is_measured();
  for (const auto name : simulation::all_reduce_algorithms()) question.search.algorithms.emplace_back(name);
  if (!question.trace) {
    for (const auto& spec : options.codecs) question.search.codecs.push_back(measure_codec(spec));
    question.search.policies = options.policies;
  }
  question.search.unequal = options.unequal;
  question.place = options.place;
  complete(question, budget);
  return question;
}

void complete(Question& question, Budget& budget) {
  question.search.levels = [place = question.place](const SyncPolicy& policy, Rank replicas) {
    return simulation::levels_of(policy, simulation::place_for(policy, place), replicas);
  };
  question.search.takes_codec = goes_by;
  const double gradients = question.trace ? most_summed_bytes(*question.trace) : most_gradient_bytes(question);
  question.search.bucket_bytes = bucket_sizes(gradients);
  for (PlanNetwork& network : question.networks) {
    network.options.enough = budget.until(share_of_sizes);
    network.by_size = fastest_algorithms(network.topology, question.search.algorithms, most_bytes_of_a_table(gradients),
                                         network.options);
    network.options.enough = budget.until(1);
  }
  question.search.enough = budget.until(1);
}

Answer answer(const Question& question) {
  std::vector<std::string> left_out;
  PlanSearch search = question.search;
  search.left_out = [&](const std::string& sync, const std::string& why) {
    left_out.push_back(fmt::format("policy: {} is left out: {}", sync, why));
  };
  Answer result{.ranked = question.trace ? rank_plans(*question.trace, question.networks, search)
                                         : rank_plans(question.divisions, question.networks, search),
                .plan = {}};
  result.plan = plan_of(question, result.ranked.front());
  result.plan.because = reasons(question, result.ranked);
  result.plan.because.insert(result.plan.because.end(), left_out.begin(), left_out.end());
  const std::size_t chosen = result.ranked.front().network;
  if (chosen < question.losses.size() && !question.losses[chosen].empty())
    result.plan.because.push_back("loss: " + question.losses[chosen]);
  return result;
}

}  // namespace ranvier::planning
