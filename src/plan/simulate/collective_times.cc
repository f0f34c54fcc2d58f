#include "plan/simulate/collective_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "plan/simulate/in_network.h"
#include "plan/simulate/instance.h"
#include "plan/simulate/step.h"
#include "ranvier/cost.h"
#include "ranvier/error.h"

namespace ranvier::plan {
namespace {

constexpr std::size_t element_bytes = 4;
// Beyond it loads are counted on some ranks, which is less of a bound and still one.
constexpr Rank most_counted_ranks = 1024;
// Slices after which times repeat or nearly so, where more of them have too many messages to be simulated.
constexpr std::size_t least_period = 4;
// SimulatedRun::work: what is simulated as it is unless it is on a line at once, and what all that is tried for one
// collective may come to.
constexpr double little_work = 2e6;
constexpr double most_work = 1e7;
// Elements of a chunk below which no length is taken for one between others.
constexpr std::size_t least_between = 256;

bool splits(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::all_to_all;
}

// As even_layout counts elements.
std::size_t count_of(const Schedule& schedule, std::size_t chunk) {
  return moves_whole_vector(schedule.collective) ? chunk * schedule.chunks : chunk;
}

// Slices after which times of pipelines may repeat: those of few rounds go through all of them before they take the
// next ones, so that a number of slices is divisible by their rounds; 12 is by the other periods that are likely.
std::size_t period_of(const Schedule& schedule) {
  constexpr std::size_t usual = 12;
  std::size_t rounds = 1;
  for (const Step& step : schedule.program(0)) rounds = std::max<std::size_t>(rounds, step.round + 1);
  return rounds <= usual ? std::lcm(usual, rounds) : usual;
}

// All of the four lengths of a line, the first of which may be nearly two periods.
constexpr std::size_t slices_of_a_line(std::size_t period) { return (2 + 3 + 4 + 5) * period; }

// What makes `longer` so is carried no faster than links can: where a pipeline still fills, a line would say so.
void keep_to_the_wire(SimulatedRun& one, const SimulatedRun& longer) {
  if (!have_the_same_links(one, longer)) return;
  double least = 0;
  for (std::size_t i = 0; i < one.links.size(); ++i)
    least = std::max(least, longer.links[i].utilisation * longer.ns - one.links[i].utilisation * one.ns);
  const double ns = std::min(one.ns, longer.ns - least);
  for (auto& link : one.links) link.utilisation *= one.ns / ns;
  one.ns = ns;
}

// Elements of a chunk, rounded up, so that all chunks are alike.
std::size_t chunk_elements(const Communication& what, const Schedule& schedule) {
  const double chunks = moves_whole_vector(what.collective) || splits(what.collective) ? schedule.chunks : 1;
  return static_cast<std::size_t>(std::max(1.0, std::ceil(what.bytes / element_bytes / chunks)));
}

std::vector<Rank> counted_ranks(Rank world) {
  std::vector<Rank> ranks;
  const Rank step = world <= most_counted_ranks ? 1 : world / 8;
  for (Rank rank = 0; rank < world; rank += step) ranks.push_back(rank);
  return ranks;
}

// Whether the grid behind an algorithm's name, if there is one, is of so many ranks. Nodes are of any number.
bool suits(const AlgorithmSpec& spec, Rank ranks) {
  if (spec.dims.empty() || spec.algorithm().dims != Dims::grid) return true;
  return std::accumulate(spec.dims.begin(), spec.dims.end(), std::int64_t{1}, std::multiplies<>()) == ranks;
}

std::optional<Topology> without_bursts(const Topology& topology) {
  if (std::ranges::none_of(topology.links, [](const Link& link) { return link.speed.burst_bytes > 0; })) return {};
  Topology steady = topology;
  for (Link& link : steady.links) link.speed.burst_bytes = 0;
  return steady;
}

}  // namespace

SimulatedRun streamed(const Schedule& schedule, const Topology& topology, std::size_t chunk, std::size_t element,
                      const SimulateOptions& options, Symmetry* symmetry) {
  const std::size_t slice = std::max<std::size_t>(1, options.slice_bytes / element);
  const std::size_t slices = chunk / slice;
  const std::size_t rest = chunk % slice;
  double burst = 0;
  for (const Link& link : topology.links) burst = std::max(burst, link.speed.burst_bytes);
  // A link's bucket is empty, and a sender waits for its link, before lengths count as long.
  const auto long_enough = [&](std::size_t few) {
    while (few <= slices && (few < 2 * options.buffered_slices ||
                             static_cast<double>(few) * static_cast<double>(options.slice_bytes) < burst))
      few *= 2;
    return few;
  };
  const auto simulated = [&](std::size_t elements) {
    return simulate({schedule, topology, count_of(schedule, elements), element, options, symmetry,
                     elements > slice ? 0 : slice / elements, true});
  };
  // A whole number of periods from the length itself, since times come and go with a period.
  const auto shortest = [slices](std::size_t few) { return few + slices % few; };
  const auto of_periods = [&](std::size_t few, std::size_t periods) {
    return simulated((shortest(few) + periods * few) * slice + rest);
  };
  const auto periods_to_go = [&](std::size_t few) {
    const std::size_t periods = (slices - shortest(few)) / few;
    return static_cast<double>(periods);
  };
  const auto is_long = [slices](std::size_t few) { return 5 * few < slices; };

  const std::size_t least = long_enough(least_period);
  if (!is_long(least)) return simulated(chunk);
  const SimulatedRun one = of_periods(least, 1);
  if (one.by_smaller_worlds)  // which stream themselves
    if (auto all = by_smaller_worlds({schedule, topology, count_of(schedule, chunk), element, options})) return *all;
  const double work_of_slice = static_cast<double>(one.work) / static_cast<double>(shortest(least) + least);
  const auto work_of = [&](std::size_t many) { return work_of_slice * static_cast<double>(many); };
  const std::size_t period = long_enough(period_of(schedule));
  double straight = 1e-7;  // of the longest
  for (std::size_t few = period; is_long(few) && work_of(slices_of_a_line(few)) <= most_work; few *= 2) {
    std::array<SimulatedRun, 4> runs;
    for (std::size_t i = 0; i < runs.size(); ++i) runs[i] = of_periods(few, i);
    const double step = (runs[3].ns - runs[0].ns) / 3;
    const auto is_straight = [&](std::size_t i) {
      return std::abs(runs[i + 1].ns - runs[i].ns - step) <= straight * runs[3].ns;
    };
    if (is_straight(0) && is_straight(1)) return on_the_line(runs[0], runs[3], periods_to_go(few) / 3);
    if (work_of(slices) <= little_work) break;
    straight = 1e-3;
  }
  if (work_of(slices) <= most_work) return simulated(chunk);
  // The second half of what may be simulated: there the pipeline is as full as it gets.
  const auto longest = static_cast<std::size_t>(most_work / work_of_slice) / 8;  // of two lengths, up to 3 and 5 of it
  const std::size_t few = longest < period ? std::max(least, longest) : longest / period * period;
  SimulatedRun first = of_periods(few, 1);
  const SimulatedRun second = of_periods(few, 3);
  if (burst == 0) keep_to_the_wire(first, second);
  return on_the_line(first, second, (periods_to_go(few) - 1) / 2);
}

CollectiveTimes::CollectiveTimes(const Workload& workload, const Topology& topology, const SimulateOptions& options,
                                 std::optional<RankGroups> averaging)
    : topology_(topology),
      grid_(workload, topology.world),
      groups_(workload.groups),
      averaging_(std::move(averaging)),
      options_(options),
      without_bursts_(without_bursts(topology)) {
  for (const Link& link : topology.links)
    longest_rest_ns_ = std::max(longest_rest_ns_, link.speed.burst_bytes / link.speed.bytes_per_second * 1e9);
  options_.trace = false;
  options_.grid = grid_of_roles_ =
      grid_.dims(averaging_ && !averaging_->empty() ? static_cast<Rank>(averaging_->front().size()) : 0);
}

Axes CollectiveTimes::axes_of(Role role) const {
  const auto found = groups_.find(role);
  return found == groups_.end() ? Axes{grid_.of(role)} : found->second;
}

bool CollectiveTimes::has_peers(const Communication& what) const {
  if (averaging_ && is_average(what)) return !averaging_->empty();
  return size_of(axes_of(what.role)) > 1;
}

std::string CollectiveTimes::suited(const std::string& algorithm, const Communication& what) const {
  if (algorithm == in_network) return algorithm;
  const AlgorithmSpec spec = parse_algorithm(algorithm);
  const Rank averaging = size_of(axes_of(groups_.empty() ? Role::data : Role::weight_gradient));
  const bool is_own = suits(spec, size_of(who(what).axes)) || !suits(spec, averaging);
  return is_own ? algorithm : std::string(spec.algorithm().name);
}

CollectiveTimes::Who CollectiveTimes::who(const Communication& what) const {
  if (averaging_ && is_average(what)) return {.in_nodes = true};
  return {.axes = axes_of(what.role)};
}

CollectiveTimes::Kind& CollectiveTimes::kind(const Communication& what, const Who& who, const std::string& algorithm) {
  const std::size_t slices = algorithm == in_network ? slices_of_sum(what.bytes, options_.slice_bytes) : 1;
  const KindKey key{algorithm, what.collective, who, slices};
  if (const auto found = kinds_.find(key); found != kinds_.end()) return found->second;
  return kinds_.emplace(key, made(what.collective, who, algorithm, slices)).first->second;
}

CollectiveTimes::Kind CollectiveTimes::made(Collective collective, const Who& who, const std::string& algorithm,
                                            std::size_t slices) const {
  if (who.in_nodes && algorithm == in_network) {
    (void)summed_by_switches(topology_, grid_.of(Role::data), slices);  // refuses networks without them
    if (names_a_shape(topology_.name))
      throw Error(ErrorKind::usage,
                  fmt::format("averages inside nodes are not added up by the switches of {}; take topology star or "
                              "fat_tree:4, or a policy of everybody, such as bsp or local:16",
                              topology_.name));
  }
  if (who.in_nodes)
    return {.schedule = in_groups(collective, topology_.world, *averaging_, algorithm), .grid = grid_of_roles_};
  if (algorithm != in_network)
    return {.schedule = in_all_groups(collective, topology_.world, who.axes, algorithm, who.hops),
            .grid = groups_.empty() ? grid_of_roles_ : grid_of(who.axes, topology_.world)};
  if (who.axes.size() != 1)
    throw Error(ErrorKind::usage, "switches add up in groups whose ranks stand evenly apart; leave out --in-network");
  auto [schedule, topology] = summed_by_switches(topology_, who.axes.front(), slices);
  auto steady = without_bursts(topology);
  return {.schedule = std::move(schedule),
          .topology = std::move(topology),
          .without_bursts = std::move(steady),
          .grid = grid_of_roles_};
}

const SimulatedRun& CollectiveTimes::run(const Communication& what, const std::string& algorithm, Links links,
                                         Lengths lengths) {
  Kind& found = kind(what, who(what), algorithm);
  return run(found, chunk_elements(what, found.schedule), links, lengths);
}

const SimulatedRun& CollectiveTimes::run(const Communication& what, const Axes& axes, Rank hops,
                                         const std::string& algorithm, Links links) {
  Kind& found = kind(what, {.axes = axes, .hops = hops}, algorithm);
  found.grid = grid_of(axes, world());
  return run(found, chunk_elements(what, found.schedule), links, Lengths::each);
}

// Of lengths in a geometric row, which are the same for all buckets and codecs.
const SimulatedRun& CollectiveTimes::between_neighbours(Kind& kind, std::size_t chunk, Links links) {
  const auto [known, added] = estimated_.try_emplace({&kind, chunk, links});
  if (!added) return known->second;
  constexpr double in_an_octave = 4;
  const double place = std::floor(std::log2(static_cast<double>(chunk)) * in_an_octave);
  const auto length = [&](double at) { return static_cast<std::size_t>(std::exp2(at / in_an_octave)); };
  const std::size_t below = std::min(chunk, length(place));
  const std::size_t above = std::max(chunk + 1, length(place + 1));
  const double far = static_cast<double>(chunk - below) / static_cast<double>(above - below);
  try {
    known->second = on_the_line(run(kind, below, links, Lengths::each), run(kind, above, links, Lengths::each), far);
  } catch (...) {
    estimated_.erase(known);
    throw;
  }
  return known->second;
}

const SimulatedRun& CollectiveTimes::run(Kind& kind, std::size_t chunk, Links links, Lengths lengths) {
  const auto& steady = kind.topology ? kind.without_bursts : without_bursts_;
  if (!steady) links = Links::rested;
  if (lengths == Lengths::some && chunk >= least_between && !known_.contains({&kind, chunk, links}))
    return between_neighbours(kind, chunk, links);
  const Topology& network = links == Links::busy ? *steady : network_of(kind);
  auto& symmetry = links == Links::busy ? kind.symmetry : kind.rested_symmetry;
  const auto [known, added] = known_.try_emplace({&kind, chunk, links});
  if (!added) return known->second;
  end_if_enough(options_);
  options_.grid = kind.grid;  // not of a copy: SimulateOptions::enough may count how often it is asked
  try {
    known->second = streamed(kind.schedule, network, chunk, element_bytes, options_, &symmetry);
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
  double byte_ns = std::numeric_limits<double>::infinity();
  for (const Rank rank : counted_ranks(topology_.world)) {
    std::map<Rank, double> sent;
    for (const Step& step : kind.schedule.program(rank))
      if (step.action == Action::send) sent[step.peer] += step.chunks;
    for (const auto& [peer, count] : sent) {
      double way_ns = 0;
      double slowest_ns = 0;
      for (const auto& [link, part] : way(network_of(kind), rank, peer)) {
        chunks[link] += count * part;
        const LinkSpeed& speed = topology_.links[link].speed;
        way_ns += static_cast<double>(speed.latency.count());
        if (speed.burst_bytes == 0) slowest_ns = std::max(slowest_ns, 1e9 / speed.bytes_per_second);
      }
      latency_ns = std::min(latency_ns, way_ns);
      byte_ns = std::min(byte_ns, slowest_ns);
    }
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
  if (all_ways_are_alike && std::isfinite(latency_ns)) {
    kind.messages = std::max<std::uint32_t>(1, ScheduleCost::depth(kind.schedule));
    kind.latency_ns = latency_ns + options_.message_ns;
    kind.byte_ns = byte_ns;
  }
  kind.bounded = true;
}

CollectiveTimes::Least CollectiveTimes::at_least(const Communication& what, const std::string& algorithm) {
  return at_least(kind(what, who(what), algorithm), what);
}

CollectiveTimes::Least CollectiveTimes::at_least(const Communication& what, const Axes& axes, Rank hops,
                                                 const std::string& algorithm) {
  return at_least(kind(what, {.axes = axes, .hops = hops}, algorithm), what);
}

CollectiveTimes::Least CollectiveTimes::at_least(Kind& found, const Communication& what) const {
  if (!found.bounded) {
    end_if_enough(options_);
    bound(found);
  }
  const auto chunk_bytes = static_cast<double>(chunk_elements(what, found.schedule) * element_bytes);
  Least least{.kind = &found};
  for (const auto& line : found.links) {
    least.links_ns.push_back(std::max(0.0, chunk_bytes * line.seconds_of_byte - line.burst_seconds) * 1e9);
    least.ns = std::max(least.ns, least.links_ns.back());
  }
  // Of a link's last byte and a chain's last message either may be the later one. What a message of a chain brings is
  // there once all of its first slice is.
  const double message_bytes = std::min(chunk_bytes, static_cast<double>(options_.slice_bytes));
  least.ns = std::max(least.ns, found.messages * (found.latency_ns + found.byte_ns * message_bytes));
  return least;
}

}  // namespace ranvier::plan
