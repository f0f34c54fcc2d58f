#include "plan/simulate/collective_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "ranvier/cost.h"

namespace ranvier::plan {
namespace {

constexpr std::size_t element_bytes = 4;
// Beyond it loads are counted on some ranks, which is less of a bound and still one.
constexpr Rank most_counted_ranks = 256;

// What Communication::bytes counts: the whole vector, or what one rank has of it.
bool counts_the_whole(Collective collective) {
  return collective == Collective::all_reduce || collective == Collective::reduce ||
         collective == Collective::broadcast;
}
bool splits(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::all_to_all;
}

// As even_layout counts elements.
std::size_t count_of(const Schedule& schedule, std::size_t chunk) {
  return counts_the_whole(schedule.collective) ? chunk * schedule.chunks : chunk;
}

// The run of a vector that is `far` of its way from one to a longer one, or beyond: times and loads are on a line.
SimulatedRun on_the_line(const SimulatedRun& one, const SimulatedRun& longer, double far) {
  const auto at = [far](double a, double b) { return a + (b - a) * far; };
  SimulatedRun run = longer;
  run.ns = at(one.ns, longer.ns);
  run.messages = static_cast<std::size_t>(at(static_cast<double>(one.messages), static_cast<double>(longer.messages)));
  for (std::size_t i = 0; i < run.links.size(); ++i)
    run.links[i].utilisation = at(one.links[i].utilisation * one.ns, longer.links[i].utilisation * longer.ns) / run.ns;
  return run;
}

// Slices after which times of pipelines may repeat: those of few rounds go through all of them before they take the
// next ones, so that a number of slices is divisible by their rounds; 12 is by the other periods that are likely.
std::size_t period_of(const Schedule& schedule) {
  constexpr std::size_t usual = 12;
  std::size_t rounds = 1;
  for (const Step& step : schedule.program(0)) rounds = std::max<std::size_t>(rounds, step.round + 1);
  return rounds <= usual ? std::lcm(usual, rounds) : usual;
}

// Elements of a chunk, rounded up, so that all chunks are alike.
std::size_t chunk_elements(const Communication& what, const Schedule& schedule) {
  const double chunks = counts_the_whole(what.collective) || splits(what.collective) ? schedule.chunks : 1;
  return static_cast<std::size_t>(std::max(1.0, std::ceil(what.bytes / element_bytes / chunks)));
}

std::vector<Rank> counted_ranks(Rank world) {
  std::vector<Rank> ranks;
  const Rank step = world <= most_counted_ranks ? 1 : world / 8;
  for (Rank rank = 0; rank < world; rank += step) ranks.push_back(rank);
  return ranks;
}

}  // namespace

SimulatedRun streamed(const Schedule& schedule, const Topology& topology, std::size_t chunk, std::size_t element,
                      const SimulateOptions& options) {
  constexpr double on_a_line = 1e-7;
  const auto simulated = [&](std::size_t elements) {
    return simulate(schedule, topology, count_of(schedule, elements), element, options);
  };
  const std::size_t slice = std::max<std::size_t>(1, options.slice_bytes / element);
  const std::size_t slices = chunk / slice;
  const std::size_t rest = chunk % slice;
  double burst = 0;
  for (const Link& link : topology.links) burst = std::max(burst, link.speed.burst_bytes);
  // A link's bucket is empty, and a sender waits for its link, before lengths count as long.
  std::size_t few = period_of(schedule);
  while (few < 2 * options.buffered_slices || static_cast<double>(few * options.slice_bytes) < burst) few *= 2;
  for (; 5 * few < slices; few *= 2) {
    // A whole number of steps from the length itself, since times come and go with a period.
    const std::size_t least = few + slices % few;
    std::array<SimulatedRun, 4> runs;
    for (std::size_t i = 0; i < runs.size(); ++i) runs[i] = simulated((least + i * few) * slice + rest);
    const double step = (runs[3].ns - runs[0].ns) / 3;
    const bool straight = std::abs(runs[1].ns - runs[0].ns - step) <= on_a_line * runs[3].ns &&
                          std::abs(runs[2].ns - runs[1].ns - step) <= on_a_line * runs[3].ns;
    if (straight) return on_the_line(runs[2], runs[3], static_cast<double>((slices - least) / few - 2));
  }
  return simulated(chunk);
}

CollectiveTimes::CollectiveTimes(const Workload& workload, const Topology& topology, const SimulateOptions& options)
    : topology_(topology), grid_(workload, topology.world), options_(options) {
  options_.trace = false;
  options_.grid = grid_.dims();
}

CollectiveTimes::Kind& CollectiveTimes::kind(const Communication& what, const std::string& algorithm) {
  const KindKey key{algorithm, what.collective, what.role};
  if (const auto found = kinds_.find(key); found != kinds_.end()) return found->second;
  Kind made{.schedule = in_all_groups(what.collective, topology_.world, grid_.of(what.role), algorithm)};
  return kinds_.emplace(key, std::move(made)).first->second;
}

const SimulatedRun& CollectiveTimes::run(const Communication& what, const std::string& algorithm) {
  const Kind& found = kind(what, algorithm);
  const std::size_t chunk = chunk_elements(what, found.schedule);
  const auto [known, added] = known_.try_emplace({&found, chunk});
  if (!added) return known->second;
  try {
    known->second = streamed(found.schedule, topology_, chunk, element_bytes, options_);
  } catch (...) {
    known_.erase(known);
    throw;
  }
  return known->second;
}

// Chunks that each link has to carry, and messages that follow one another.
void CollectiveTimes::bound(Kind& kind) const {
  std::map<LinkNumber, double> chunks;
  double latency_ns = std::numeric_limits<double>::infinity();
  for (const Rank rank : counted_ranks(topology_.world))
    for (const Step& step : kind.schedule.program(rank)) {
      if (step.action != Action::send) continue;
      double way_ns = 0;
      for (const LinkNumber link : topology_.path(rank, step.peer)) {
        chunks[link] += step.chunks;
        way_ns += static_cast<double>(topology_.links[link].speed.latency.count());
      }
      latency_ns = std::min(latency_ns, way_ns);
    }
  std::vector<Kind::Line> lines;
  for (const auto& [link, count] : chunks) {
    const LinkSpeed& speed = topology_.links[link].speed;
    lines.push_back({count / speed.bytes_per_second, speed.burst_bytes / speed.bytes_per_second});
  }
  // Links that save up alike are bounded by the one with most to carry.
  std::sort(lines.rbegin(), lines.rend());
  for (const auto& line : lines)
    if (std::ranges::none_of(kind.links, [&](const auto& other) { return other.burst_seconds <= line.burst_seconds; }))
      kind.links.push_back(line);
  // Of larger worlds only some are looked at, so that a nearer pair may be missed.
  const bool all_ways_are_alike = topology_.world <= most_counted_ranks;
  if (all_ways_are_alike && std::isfinite(latency_ns))
    kind.latency_ns =
        latency_ns * std::max<std::uint32_t>(1, topology_.world <= 64 ? ScheduleCost(kind.schedule).depth() : 1);
  kind.bounded = true;
}

double CollectiveTimes::at_least(const Communication& what, const std::string& algorithm) {
  Kind& found = kind(what, algorithm);
  if (!found.bounded) bound(found);
  const auto chunk_bytes = static_cast<double>(chunk_elements(what, found.schedule) * element_bytes);
  double seconds = 0;
  for (const auto& line : found.links)
    seconds = std::max(seconds, chunk_bytes * line.seconds_of_byte - line.burst_seconds);
  // Of a link's last byte and a chain's last message either may be the later one.
  return std::max(seconds * 1e9, found.latency_ns);
}

}  // namespace ranvier::plan
