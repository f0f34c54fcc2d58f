#include "plan/simulate/own_pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/simulate/levels.h"
#include "plan/simulate/step.h"
#include "ranvier/error.h"

namespace ranvier::plan {
namespace {

constexpr Rank most_workers = 128;
constexpr std::uint64_t usual_messages = 200'000;
constexpr std::uint64_t least_steps = 20;

void check(const SyncPolicy& policy, const Workload& workload, const StepSimulation& how, const StepPrediction& alone,
           Rank workers) {
  const auto refuse = [&](std::string_view reason) {
    throw Error(ErrorKind::usage, fmt::format("'{}' on {}: {}", policy.spec(), workload.name, reason));
  };
  const Degrees& degrees = workload.degrees;
  if (degrees.tensor > 1 || degrees.pipeline > 1 || degrees.expert > 1)
    refuse("workers at their own pace have replicas of a whole model; leave out its degrees");
  if (alone.communication_ns > 0)
    refuse(
        "its steps have collectives beside averages of gradients, for which workers at their own pace cannot meet; "
        "name a policy of steps of everybody's, such as bsp or local:16");
  if (!how.options.slowdown.empty()) refuse("--straggler is of steps of everybody's; slow workers down by --speeds");
  if (workers > most_workers)
    refuse(fmt::format("messages of workers are simulated one by one, for up to {} of them; name a smaller world",
                       most_workers));
}

}  // namespace

OwnPace::OwnPace(const SyncPolicy& policy, const Workload& workload, const StepSimulation& how, CollectiveTimes& times,
                 const PolicySimulation& simulation, Rank workers, std::optional<std::uint64_t> bound)
    : topology_(times.topology()),
      workers_(workers),
      bytes_(averaged_bytes(workload) * how.gradient_scale),
      message_ns_(how.options.message_ns),
      gate_(workers, bound, 0),
      alone_(simulate_step(without_averages(workload), how, times)),
      passes_ns_(passes_ns(alone_, workload)) {
  check(policy, workload, how, alone_, workers_);
  for (Rank worker = 0; worker < workers_; ++worker)
    slowness_.emplace_back(simulation.unequal, static_cast<std::uint64_t>(worker), simulation.seed);
}

void OwnPace::connect(std::vector<std::vector<Crossing>> routes, std::uint64_t messages_a_step, std::uint64_t steps) {
  std::vector<FluidLink> links;
  for (const Link& link : topology_.links) links.push_back({link.speed.bytes_per_second / 1e9, link.speed.burst_bytes});
  network_.emplace(std::move(links), std::move(routes));
  steps_ = steps > 0 ? steps
                     : std::clamp(usual_messages / std::max<std::uint64_t>(messages_a_step, 1), least_steps,
                                  steps_of_a_policy);
}

std::vector<Crossing> OwnPace::route(Rank from, Rank to) const {
  std::vector<Crossing> way;
  for (const LinkNumber link : topology_.path(from, to)) way.push_back({link, 1});
  return way;
}

double OwnPace::latency_ns(Rank from, Rank to) const {
  if (from == to) return 0;
  double ns = message_ns_;
  for (const LinkNumber link : topology_.path(from, to))
    ns += static_cast<double>(topology_.links[link].speed.latency.count());
  return ns;
}

void OwnPace::run() {
  std::vector<std::uint32_t> left;
  while (network_->flows() || !events_.empty()) {
    const double event = events_.empty() ? std::numeric_limits<double>::infinity() : events_.top().at - now_;
    const double flow = network_->flows() ? network_->until_next() : std::numeric_limits<double>::infinity();
    const double passes = std::max(0.0, std::min(event, flow));
    left.clear();
    network_->advance(passes, left);
    now_ += passes;
    for (const std::uint32_t channel : left) arrive(channel);
    while (!events_.empty() && events_.top().at <= now_ * (1 + 1e-12)) {
      const Event each = events_.top();
      events_.pop();
      happen(each);
    }
  }
}

double OwnPace::compute_ns(Rank worker, double part, std::uint64_t first) {
  const double usual = alone_.step_ns - passes_ns_ + passes_ns_ * part;
  const double slow = slowness_[static_cast<std::size_t>(worker)].of(first / all_samples()) - 1;
  const double own = usual + passes_ns_ * part * slow;
  computing_ns_ += own;
  return own;
}

PolicyPrediction OwnPace::prediction(std::uint64_t rounds) {
  const auto count = static_cast<double>(steps_);
  return {.step_ns = now_ / count,
          .exposed_communication_ns = (now_ - computing_ns_ / workers_) / count,
          .rounds_per_step = static_cast<double>(rounds) / count,
          .steps = steps_,
          .usual = std::move(alone_),
          .averages_gradients = false};
}

std::vector<SimulatedLink> OwnPace::used_links() const {
  std::vector<SimulatedLink> used;
  for (std::size_t link = 0; link < topology_.links.size(); ++link) {
    const Link& each = topology_.links[link];
    const double busy_ns = network_->carried()[link] / (each.speed.bytes_per_second / 1e9);
    if (busy_ns > 0)
      used.push_back({.from = vertex_name(topology_, each.from),
                      .to = vertex_name(topology_, each.to),
                      .dimension = each.dimension,
                      .utilisation = std::min(1.0, busy_ns / now_)});
  }
  return used;
}

}  // namespace ranvier::plan
