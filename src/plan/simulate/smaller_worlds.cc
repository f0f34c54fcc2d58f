// Schedules that take a round more of twice as many ranks, as trees do, on one switch: four smaller worlds, each of
// twice the ranks of the one before, and a line through their times. Nothing of others, whose times are on no line.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "plan/simulate/collective_times.h"
#include "plan/simulate/instance.h"

namespace ranvier::plan {
namespace {

constexpr Rank fewest = 4096;  // ranks: of fewer each is simulated
// Ranks of the largest of the smaller worlds, of which not much more than so many messages are simulated.
constexpr Rank largest = 1024;
constexpr Rank least = 256;
constexpr double messages_of_largest = 1e6;
constexpr double bent = 1e-5;    // of the longest time: what is no further from a line, or a parabola, is on it
constexpr double nearly = 5e-2;  // how much of its time a world may be from a line where it ends

}  // namespace

std::optional<LinkSpeed> links_of_star(const Topology& topology) {
  if (topology.switches != 1 || topology.name != "star" || topology.links.empty() ||
      topology.links.size() != 2 * static_cast<std::size_t>(topology.world))
    return std::nullopt;
  const LinkSpeed& first = topology.links.front().speed;
  const bool all_alike = std::ranges::all_of(topology.links, [&](const Link& link) {
    return link.speed.bytes_per_second == first.bytes_per_second && link.speed.latency == first.latency &&
           link.speed.burst_bytes == first.burst_bytes;
  });
  return all_alike ? std::optional(first) : std::nullopt;
}

namespace {

// How its algorithm makes one for another world, if it takes nothing but that; none where it is of groups.
const Algorithm* builder_of(const Schedule& schedule) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.name != schedule.algorithm || algorithm.dims != Dims::none ||
        std::ranges::count(algorithm.collectives, schedule.collective) == 0)
      continue;
    const Schedule same =
        algorithm.build({.collective = schedule.collective, .world = schedule.world, .root = schedule.root});
    const bool is_it = schedule.root == 0 && same.chunks == schedule.chunks &&
                       std::ranges::all_of(std::array{0, 1, schedule.world / 3, schedule.world - 1}, [&](Rank rank) {
                         return are_equal(same.program(rank), schedule.program(rank));
                       });
    if (is_it) return &algorithm;
  }
  return nullptr;
}

}  // namespace

std::optional<SimulatedRun> by_smaller_worlds(const Job& job) {
  SimulateOptions options = job.options;
  const Rank world = job.schedule.world;
  const auto speed = links_of_star(job.topology);
  if (!is_one_by_itself(options) || !options.slowdown.empty() || !speed || world < fewest) return std::nullopt;
  const Algorithm* const algorithm = builder_of(job.schedule);
  if (algorithm == nullptr) return std::nullopt;
  options.most_whole = largest;
  const double messages_of_one = static_cast<double>(messages_of_rank(job, 1) + messages_of_rank(job, world / 3) +
                                                     messages_of_rank(job, world - 1)) /
                                 3;
  Rank most = largest;
  while (most > least && messages_of_one * most > messages_of_largest) most /= 2;
  Rank doublings = 0;  // from the largest of them
  while (world >> doublings > most) ++doublings;
  std::array<SimulatedRun, 4> runs;
  std::array<double, 4> ns = {};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Rank fewer = world >> (doublings + 3 - static_cast<Rank>(i));
    const Schedule schedule = algorithm->build({.collective = job.schedule.collective, .world = fewer});
    const std::size_t parts = moves_whole_vector(schedule.collective) ? schedule.chunks : 1;
    const std::size_t chunk = (job.count + parts - 1) / parts;
    const Topology star = topology::star(fewer, *speed);
    runs[i] = streamed(schedule, star, chunk, job.element_bytes, options);
    ns[i] = runs[i].ns;
    if (runs[i].folded) return std::nullopt;
    if (i > 1 && std::abs(ns[i] - 2 * ns[i - 1] + ns[i - 2]) > nearly * ns[i]) return std::nullopt;
  }
  const double far = doublings;
  const double step = ns[3] - ns[2];
  const double bend = step - (ns[2] - ns[1]);
  const double change = bend - (ns[2] - 2 * ns[1] + ns[0]);
  double longest = ns[3] + far * step + far * (far + 1) / 2 * bend;
  if (std::abs(change) > bent * ns[3]) {
    // The straight line that is nearest, from the middle of the four.
    const double slope = (3 * (ns[3] - ns[0]) + ns[2] - ns[1]) / 10;
    const double mean = (ns[0] + ns[1] + ns[2] + ns[3]) / 4;
    for (std::size_t i = 0; i < ns.size(); ++i)
      if (std::abs(mean + (static_cast<double>(i) - 1.5) * slope - ns[i]) * far > nearly * ns[3]) return std::nullopt;
    longest = mean + (far + 1.5) * slope;
  }
  SimulatedRun found = std::move(runs[3]);
  // What the links of the first ranks carry is on a line as well: those of a root more, all others the same.
  found.links.resize(runs[0].links.size());
  for (std::size_t i = 0; i < found.links.size(); ++i) {
    const double carried = found.links[i].utilisation * ns[3];
    const double more = carried - runs[2].links[i].utilisation * ns[2];
    found.links[i].utilisation = std::clamp((carried + far * more) / longest, 0.0, 1.0);
  }
  found.ns = longest;
  found.messages = static_cast<std::size_t>(static_cast<double>(found.messages) / found.ranks * world);
  found.folded = found.by_smaller_worlds = true;
  return found;
}

}  // namespace ranvier::plan
