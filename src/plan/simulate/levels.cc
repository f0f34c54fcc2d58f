#include "plan/simulate/levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "plan/simulate/policy.h"
#include "plan/simulate/step.h"
#include "ranvier/error.h"

namespace ranvier::plan {
namespace {

constexpr std::size_t f32_bytes = 4;

std::size_t elements_of_a_chunk(const Schedule& schedule, double bytes) {
  return static_cast<std::size_t>(std::max(1.0, bytes / f32_bytes / schedule.chunks));
}

}  // namespace

RankGroups ranks_of(const RankGroups& replicas, const Workload& workload, Rank world) {
  const Rank tensor = workload.degrees.tensor;
  const Rank stage = world / workload.degrees.pipeline;  // ranks of one
  RankGroups groups;
  for (Rank first = 0; first < world; first += stage)
    for (Rank part = first; part < first + tensor; ++part)
      for (const auto& group : replicas) {
        groups.emplace_back();
        for (const Rank replica : group) groups.back().push_back(part + replica * tensor);
      }
  return groups;
}

double broadcast_ns(const RankGroups& groups, double bytes, const Topology& topology, const SimulateOptions& options) {
  if (groups.empty() || !(bytes > 0)) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const Algorithm& algorithm : algorithms()) {
    if (std::ranges::count(algorithm.collectives, Collective::broadcast) == 0) continue;
    const Schedule schedule = in_groups(Collective::broadcast, topology.world, groups, std::string(algorithm.name));
    const std::size_t chunk = elements_of_a_chunk(schedule, bytes);
    least = std::min(least, streamed(schedule, topology, chunk, f32_bytes, options).ns);
  }
  return least;
}

double averaged_bytes(const Workload& workload) {
  double bytes = 0;
  for (const Layer& layer : workload.layers)
    for (const auto& each : layer.weight_gradient.communications)
      if (is_average(each)) bytes += each.bytes;
  return bytes;
}

LevelAverages::LevelAverages(const Workload& workload, const StepSimulation& how, const PolicySimulation& simulation,
                             CollectiveTimes& times)
    : workload_(workload), how_(how), simulation_(simulation), everybody_(times) {
  const auto replicas = static_cast<std::uint64_t>(replicas_in(workload, times.world()));
  for (const auto& level : simulation.levels)
    if (level.size() != replicas)
      throw Error(ErrorKind::usage,
                  fmt::format("levels place {} replicas, and there are {}; place them all", level.size(), replicas));
  if (!simulation.levels.empty() && workload.degrees.expert > 1)
    throw Error(ErrorKind::usage, fmt::format("{} divides its experts over replicas, which levels of a policy cannot "
                                              "average apart; name a policy of everybody, such as bsp or local:16",
                                              workload.name));
}

std::span<const int> LevelAverages::groups(std::size_t level) const {
  if (simulation_.levels.empty()) return {};
  return simulation_.levels.at(level);
}

bool LevelAverages::is_everybody(std::size_t level) const {
  return std::ranges::all_of(groups(level), [](int group) { return group == 0; });
}

RankGroups LevelAverages::groups_of(std::size_t level) const {
  RankGroups result;
  for (Rank replica = 0; const int group : groups(level)) {
    if (static_cast<std::size_t>(group) >= result.size()) result.resize(static_cast<std::size_t>(group) + 1);
    result[static_cast<std::size_t>(group)].push_back(replica++);
  }
  return result;
}

CollectiveTimes& LevelAverages::times_among(const RankGroups& replicas) {
  auto& slot = times_[replicas];
  if (!slot) {
    RankGroups several = replicas;
    std::erase_if(several, [](const auto& group) { return group.size() < 2; });
    slot = std::make_unique<CollectiveTimes>(workload_, everybody_.topology(), everybody_.options(),
                                             ranks_of(several, workload_, everybody_.world()));
  }
  return *slot;
}

const StepSimulation& LevelAverages::how(std::size_t level) const {
  const bool is_last = simulation_.levels.empty() || level + 1 == simulation_.levels.size();
  return is_last || !simulation_.inside ? how_ : *simulation_.inside;
}

const StepPrediction& LevelAverages::step(std::size_t level) {
  if (const auto found = steps_.find(level); found != steps_.end()) return found->second;
  return steps_[level] =
             simulate_step(workload_, how(level), is_everybody(level) ? everybody_ : times_among(groups_of(level)));
}

const LevelAverages::Parameters& LevelAverages::parameters(std::size_t inside, std::size_t level) {
  const auto [known, added] = parameters_.try_emplace({inside, level});
  if (added) known->second = average(inside, level);
  return known->second;
}

double LevelAverages::push_ns(std::size_t hops) {
  const auto [known, added] = pushes_.try_emplace(hops, 0);
  if (!added) return known->second;
  const Schedule schedule =
      pushes(everybody_.world(), Grid(workload_, everybody_.world()).of(Role::data), static_cast<Rank>(hops));
  const double bytes = averaged_bytes(workload_) * how_.gradient_scale;
  const std::size_t chunk = elements_of_a_chunk(schedule, bytes);
  return known->second = streamed(schedule, everybody_.topology(), chunk, f32_bytes, everybody_.options()).ns +
                         bytes * how_.codec_ns_per_byte;
}

LevelAverages::Parameters LevelAverages::average(std::size_t inside, std::size_t level) {
  const Workload averages = only_averages(workload_);
  if (simulation_.levels.empty()) return {.ns = simulate_step(averages, how_, everybody_).step_ns};
  const RankGroups inner = groups_of(inside);
  RankGroups first_ones;  // of each group of `level`
  for (const auto& group : groups_of(level)) {
    first_ones.emplace_back();
    for (const auto& each : inner)
      if (std::ranges::count(group, each.front()) > 0) first_ones.back().push_back(each.front());
  }
  Parameters result{.groups = {groups(level).begin(), groups(level).end()}};
  for (int& group : result.groups)
    if (first_ones[static_cast<std::size_t>(group)].size() < 2) group = -1;
  RankGroups told = inner;
  std::erase_if(told, [&](const auto& group) {
    return group.size() < 2 || result.groups[static_cast<std::size_t>(group.front())] < 0;
  });
  const bool is_all = first_ones.front().size() == result.groups.size();
  result.ns = simulate_step(averages, how(level), is_all ? everybody_ : times_among(first_ones)).step_ns +
              broadcast_ns(ranks_of(told, workload_, everybody_.world()), averaged_bytes(workload_),
                           everybody_.topology(), everybody_.options());
  return result;
}

}  // namespace ranvier::plan
