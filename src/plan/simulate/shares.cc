#include "plan/simulate/shares.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace ranvier::plan {
namespace {

// How busy the busiest link of each dimension is, as parts of their sum.
std::map<std::int32_t, double> parts_of(const SimulatedRun& run) {
  std::map<std::int32_t, double> parts;
  for (const SimulatedLink& link : run.links) {
    double& most = parts[link.dimension];
    most = std::max(most, link.utilisation);
  }
  double sum = 0;
  for (const auto& [dimension, busy] : parts) sum += busy;
  for (auto& [dimension, busy] : parts) busy = sum > 0 ? busy / sum : 0;
  return parts;
}

}  // namespace

Shares::Times& Shares::times_of(const SimulatedRun& run) {
  auto found = std::ranges::find(runs_, &run, [](const auto& each) { return each.first; });
  if (found == runs_.end()) found = runs_.insert(found, {&run, {}});
  return found->second;
}

void Shares::add(const SimulatedRun& run, const Exposed& exposed, double took_ns, double codec_ns) {
  Times& times = times_of(run);
  const double took = run.ns > 0 ? took_ns / run.ns : 1;
  times.took += took;
  times.carried += 1;
  times.exposed.wall += took * exposed.wall;
  times.exposed.work += exposed.work;
  codec_ns_ += codec_ns;
  exposed_codec_ns_ += codec_ns * exposed.wall;
}

void Shares::add_wait(const SimulatedRun& run, double exposed) {
  Times& times = times_of(run);
  times.took += 1;
  times.exposed.wall += exposed;
}

std::vector<const SimulatedRun*> Shares::runs() const {
  std::vector<const SimulatedRun*> runs;
  for (const auto& [run, times] : runs_) runs.push_back(run);
  return runs;
}

void Shares::fill(StepPrediction& step, const std::vector<CommonLinks::Link>& links) const {
  std::map<std::pair<std::string_view, std::string_view>, SimulatedLink> by_name;
  for (const auto& each : links) {
    SimulatedLink& link =
        by_name.try_emplace({each.from, each.to}, std::string(each.from), std::string(each.to), each.dimension)
            .first->second;
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      const auto& [run, times] = runs_[i];
      const double busy_ns = each.busy[i] * run->ns;
      link.exposed_ns += busy_ns * times.exposed.work;
      link.hidden_ns += busy_ns * std::max(0.0, times.carried - times.exposed.work);
    }
  }
  for (auto& [ends, link] : by_name) {
    // A burst goes faster than the link's rate, by which it would be busy for longer than the step.
    const double busy_ns = link.exposed_ns + link.hidden_ns;
    const double counted = busy_ns > step.step_ns ? step.step_ns / busy_ns : 1;
    link.exposed_ns *= counted;
    link.hidden_ns *= counted;
    link.utilisation = step.step_ns > 0 ? (link.exposed_ns + link.hidden_ns) / step.step_ns : 0;
    step.links.push_back(std::move(link));
  }
  std::map<std::int32_t, StepPrediction::DimensionShare> dimensions;
  for (const auto& [run, times] : runs_)
    for (const auto& [number, part] : parts_of(*run)) {
      auto& dimension = dimensions[number];
      dimension.dimension = number;
      dimension.communication_ns += part * run->ns * times.took;
      dimension.exposed_ns += part * run->ns * times.exposed.wall;
    }
  for (const auto& [number, dimension] : dimensions) step.dimensions.push_back(dimension);
  step.codec_ns = codec_ns_;
  step.exposed_codec_ns = exposed_codec_ns_;
}

}  // namespace ranvier::plan

namespace ranvier {

StepPrediction step_of(const SimulatedRun& run) {
  StepPrediction step{.step_ns = run.ns, .communication_ns = run.ns, .exposed_communication_ns = run.ns};
  plan::Shares shares;
  shares.add(run, {.wall = 1, .work = 1}, run.ns);
  shares.fill(step, plan::link_by_link({&run}));
  return step;
}

}  // namespace ranvier
