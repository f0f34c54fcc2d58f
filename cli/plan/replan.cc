#include "plan/replan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "plan/codec_speed.h"
#include "plan/planned_step.h"
#include "plan/planner.h"
#include "plan/words.h"
#include "ranvier/error.h"
#include "ranvier/sync.h"
#include "ranvier/text.h"
#include "ranvier/workload.h"
#include "ranvier/workload_file.h"
#include "simulate/levels.h"
#include "simulate/workload.h"

namespace ranvier::planning {
namespace {

constexpr double most_change = 4096;  // of a network's speed that is still believed
constexpr int halvings = 16;

void slow_down(Workload& workload, double factor) {
  workload.idle_ns *= factor;
  for (Layer& layer : workload.layers)
    for (Phase* phase : {&layer.forward, &layer.input_gradient, &layer.weight_gradient}) phase->compute_ns *= factor;
}

Topology slower(Topology topology, double factor) {
  for (Link& link : topology.links) {
    link.speed.bytes_per_second /= factor;
    link.speed.latency =
        std::chrono::nanoseconds(std::llround(static_cast<double>(link.speed.latency.count()) * factor));
  }
  return topology;
}

// Of the limit, until when the network's factor is to be known.
constexpr double share_of_factor = 0.4;

// How averages are made by the plan: everybody's by its codec, and those inside nodes without.
struct Averages {
  StepSimulation everybody;
  std::optional<StepSimulation> inside;  // where that is not the same
};

Averages as_planned(const Plan& plan, const SimulateOptions& options, const CodecSpeed& codec,
                    const Workload& workload) {
  const StepSimulation plain{.algorithm = plan.all_reduce.empty() ? "ring" : plan.all_reduce.back().algorithm,
                             .by_size = plan.all_reduce,
                             .bucket_bytes = static_cast<double>(plan.bucket_bytes),
                             .options = options};
  if (codec.spec.empty()) return {plain, std::nullopt};
  return {with_codec(plain, codec, averaging_ranks(workload, plan.ranks)), plain};
}

// The mean step by the plan's policy, and what of it is waiting.
StepSeconds mean_step(const Plan& plan, const Averages& how, const Workload& workload, const Topology& topology) {
  if (has_equal_steps(plan)) {
    const StepPrediction step = simulate_step(workload, topology, how.everybody);
    return {step.step_ns / 1e9, step.exposed_communication_ns / 1e9};
  }
  const Rank replicas = averaging_ranks(workload, topology.world);
  const auto policy = make_sync_policy(
      plan.sync, {.steps_per_epoch = 0, .steps = steps_of_a_policy, .world = static_cast<std::uint64_t>(replicas)});
  PolicySimulation simulation;
  simulation.unequal = plan.unequal;
  simulation.inside = how.inside;
  if (policy->levels().size() > 1)
    simulation.levels = simulation::levels_of(*policy, simulation::place_for(*policy, plan.place), replicas);
  const PolicyPrediction mean = simulate_policy(*policy, workload, topology, how.everybody, simulation);
  return {mean.step_ns / 1e9, mean.exposed_communication_ns / 1e9};
}

// How many times slower the network is: the factor by which the plan's own step takes as long as was measured. None
// where none does.
std::optional<double> network_factor(const Plan& plan, const Averages& how, const Workload& workload,
                                     const Topology& topology, const StepSeconds& measured) {
  // Of unequal workers who is late is waited for too, which no network changes: the whole step is compared.
  const bool by_waiting = has_equal_steps(plan);
  const auto of = [&](const StepSeconds& step) { return by_waiting ? step.waiting : step.step; };
  const auto takes = [&](double factor) { return of(mean_step(plan, how, workload, slower(topology, factor))); };
  double least = -std::log2(most_change);
  double most = std::log2(most_change);
  if (!(of(measured) < takes(std::exp2(most)))) return std::nullopt;
  if (!(takes(std::exp2(least)) < of(measured))) {
    // As fast as can be, or, where the network is not what is waited for, as planned.
    const double alike = by_waiting ? 1.01 : 1 + tolerated_error;
    return takes(1) <= alike * takes(std::exp2(least)) ? 1 : std::exp2(least);
  }
  for (int i = 0; i < halvings; ++i) {
    const double middle = (least + most) / 2;
    (takes(std::exp2(middle)) < of(measured) ? least : most) = middle;
  }
  return std::exp2((least + most) / 2);
}

std::string network_in_words(std::optional<double> factor) {
  constexpr double as_planned = 1.05;
  if (!factor) return "which no speed of the network explains";
  if (*factor > as_planned) return fmt::format("as if the network were {:.2g} times slower than planned", *factor);
  if (1 / *factor > as_planned)
    return fmt::format("as if the network were {:.2g} times faster than planned", 1 / *factor);
  return "by a network as planned";
}

// Of the plan's workload and of the model that is trained.
void check_model(const Plan& plan, double planned_bytes, double bytes) {
  constexpr double rounding = 0.01;
  if (std::abs(planned_bytes - bytes) <= rounding * bytes) return;
  throw Error(ErrorKind::usage,
              fmt::format("its workload {} has gradients of {:.4g} MB, and this model {:.4g} MB; record this one with "
                          "ranvier train --record DIR, and plan by that",
                          plan.workload, planned_bytes / 1e6, bytes / 1e6));
}

// None where the budget did not last until a single way was known.
std::optional<Answer> search(Question& question, std::size_t bucket_bytes, Budget& budget) {
  try {
    complete(question, budget);
    if (bucket_bytes > 0) question.search.bucket_bytes = {static_cast<double>(bucket_bytes)};
    return answer(question);
  } catch (const Error& ended) {
    if (ended.kind() != ErrorKind::timeout) throw;
    return std::nullopt;
  }
}

Replanned told(Plan plan, std::string reason) {
  plan.because = {std::string(Plan::again) + reason};
  return {.plan = std::move(plan), .reason = std::move(reason)};
}

}  // namespace

Replanned replan(const Plan& followed, const Measured& measured, const SearchLimit& limit) {
  Budget budget(limit);
  Plan plan = followed;
  if (measured.bucket_bytes > 0) plan.bucket_bytes = measured.bucket_bytes;
  const StepSeconds& step = measured.step;
  Workload workload = rescaled(simulation::load_workload(plan.workload, plan.communicator, plan.network), plan.ranks);
  check_world(workload, plan.ranks);
  const Rank replicas = replicas_in(workload, plan.ranks);
  const StepSeconds planned = expected(plan, replicas);
  const double computing = std::max(step.step - step.waiting, 1e-9);
  const double planned_computing = std::max(planned.step - planned.waiting, 1e-9);
  if (measured.gradient_bytes > 0) check_model(plan, gradient_bytes(workload), measured.gradient_bytes);
  double recorded_ns = workload.idle_ns + bubble_ns(workload);
  for (const Layer& layer : workload.layers)
    recorded_ns += layer.forward.compute_ns + layer.input_gradient.compute_ns + layer.weight_gradient.compute_ns;
  if (recorded_ns > 0) slow_down(workload, computing * 1e9 / (recorded_ns * mean_slowness(plan.unequal, replicas)));

  Question question;
  question.names = {plan.workload};
  question.network_names = {plan.network};
  LinkSpeed speed;
  if (plan.link_gbit > 0) {
    speed.bytes_per_second = plan.link_gbit * 1e9 / 8;
    speed.latency = std::chrono::nanoseconds(std::llround(plan.latency_us * 1000));
  }
  const simulation::NetworkOptions network(plan.network, speed);
  question.is_measured = network.is_measured();
  PlanNetwork now{.transport = plan.transport,
                  .topology = network.topology(plan.ranks),
                  .options = network.transfers(),
                  .placement = plan.placement,
                  .by_size = {}};
  if (!plan.placement.empty()) now.topology = with_placement(now.topology, plan.placement);
  question.search.unequal = plan.unequal;
  const std::string codec_now = plan.compress == "none" ? "" : plan.compress;
  // What a codec and an outer step have gathered between averages is not to be lost: by such policies they stay.
  const bool keeps_codec = measured.keeps_codec || !averages_every_step(plan);
  if (!keeps_codec)
    for (const auto spec : default_codecs) question.search.codecs.push_back(measure_codec(spec));
  if (!averages_every_step(plan)) {
    question.search.policies = {{.spec = plan.sync}};
    question.place = plan.place;
  }
  auto& codecs = question.search.codecs;
  if (std::ranges::find(codecs, codec_now, &CodecSpeed::spec) == codecs.end())
    codecs.push_back(measure_codec(codec_now));
  if (keeps_codec) std::erase_if(codecs, [&](const CodecSpeed& each) { return each.spec != codec_now; });
  SimulateOptions transfers = now.options;
  transfers.enough = budget.until(share_of_factor);
  const Averages how = as_planned(plan, transfers, *std::ranges::find(codecs, codec_now, &CodecSpeed::spec), workload);
  std::optional<double> factor;
  StepSeconds unchanged;
  try {
    factor = network_factor(plan, how, workload, now.topology, step);
    now.topology = slower(std::move(now.topology), factor.value_or(1));
    unchanged = mean_step(plan, how, workload, now.topology);
  } catch (const Error& ended) {
    if (ended.kind() != ErrorKind::timeout) throw;
    throw Error(ErrorKind::timeout, fmt::format("that takes longer than {}", budget.in_words()));
  }
  const std::string found = fmt::format(
      "a step takes {:.2f} ms and not {:.2f}: computing {:.2f} and not {:.2f}, waiting {:.2f} and not {:.2f}, {}",
      step.step * 1e3, planned.step * 1e3, computing * 1e3, planned_computing * 1e3, step.waiting * 1e3,
      planned.waiting * 1e3, network_in_words(factor));
  if (!factor) return told(expecting(std::move(plan), step, replicas), found + "; all stays as it is");
  question.speed = {.bytes_per_second = network.speed().bytes_per_second / *factor, .latency = speed.latency};
  question.networks = {std::move(now)};
  question.divisions = {std::move(workload)};
  for (const auto name : simulation::all_reduce_algorithms()) question.search.algorithms.emplace_back(name);
  // A search that is cut short may not come to what is better, or to what is followed already.
  plan = expecting(std::move(plan), unchanged, replicas);
  std::string chosen = "the same as before";
  // By policies that do not average every step the bucket is no choice.
  const std::size_t bucket_bytes = averages_every_step(plan) ? measured.bucket_bytes : plan.bucket_bytes;
  if (const auto answer = search(question, bucket_bytes, budget); answer && answer->plan.step_ns <= plan.step_ns) {
    plan.all_reduce = answer->plan.all_reduce;
    if (averages_every_step(plan)) {
      plan.compress = answer->plan.compress;
      plan.bucket_bytes = answer->plan.bucket_bytes;
    }
    plan = expecting(std::move(plan), expected(answer->plan, replicas), replicas);
    chosen = describe(question, answer->ranked.front());
  }
  if (budget.ended_something()) chosen += fmt::format(" (the search was cut short by {})", budget.in_words());
  const double expected_ms = plan.step_ns / 1e6;
  return told(std::move(plan), fmt::format("{}; from now on {}, expected to take {:.2f}", found, chosen, expected_ms));
}

}  // namespace ranvier::planning
