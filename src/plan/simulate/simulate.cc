// Which way a world is simulated: folded where ranks do the same; whole where all send few messages; by its first
// rounds, by other slices or by smaller worlds where those tell how long it takes; or not at all.
#include "ranvier/simulate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "plan/simulate/collective_times.h"
#include "plan/simulate/instance.h"
#include "plan/simulate/shifts.h"
#include "ranvier/error.h"

namespace ranvier::plan {
namespace {

constexpr Rank most_folded_ranks = 1 << 20;
// Messages that are simulated one by one in about a second, which is not worth any other way.
constexpr std::size_t few_messages = 500'000;
// In so many slices or more, chunks of fewer tell how long it takes.
constexpr std::size_t long_chunk = 64;
// Of small worlds that are simulated whole: a minute or two.
constexpr std::size_t most_of_small_worlds = 50'000'000;

// Of one operation: what the others add to the first ones.
SimulatedRun in_a_row(const Instance& instance, const SimulateOptions& options) {
  const auto at_once = static_cast<double>(options.at_once);
  SimulatedRun first = run(beside_itself(instance, options), options);
  SimulatedRun result;
  if (options.in_a_row < 2) {
    result = std::move(first);
    result.ns /= at_once;
  } else {
    result = run(beside_itself(repeated(instance, options.in_a_row), options), options);
    result.ns = (result.ns - first.ns) / static_cast<double>(options.in_a_row - 1) / at_once;
    result.trace = std::move(first.trace);
  }
  result.ranks = static_cast<Rank>(instance.programs.size());
  return result;
}

// Of so many ranks, scattered over the world by multiples of the golden ratio (D. Knuth: The Art of Computer
// Programming, volume 3 (1998), section 6.4), which are those of no tree's level.
std::size_t sampled_messages(const Job& job, std::uint32_t some) {
  constexpr std::uint32_t golden = 2654435769u;  // of 2^32
  const auto world = static_cast<std::uint64_t>(job.schedule.world);
  double sampled = 0;
  for (std::uint32_t i = 0; i < some; ++i)
    sampled += static_cast<double>(messages_of_rank(job, static_cast<Rank>(std::uint64_t{i * golden} * world >> 32)));
  return static_cast<std::size_t>(std::min(sampled / some * static_cast<double>(world), 1e18));
}

// Of all ranks; no more than `most` of them are counted. Of large worlds, whose programs take long to make, some ranks
// tell.
std::size_t messages_of(const Job& job, std::size_t most) {
  constexpr std::uint32_t few = 8, some = 512;
  const Rank world = job.schedule.world;
  if (world > 1024 && sampled_messages(job, few) > 4 * most) return most + 1;
  if (world > static_cast<Rank>(8 * some)) return std::min(sampled_messages(job, some), most + 1);
  std::size_t messages = 0;
  for (Rank rank = 0; rank < world && messages <= most; ++rank) messages += messages_of_rank(job, rank);
  return std::min(messages, most + 1);
}

// Slices by which more ranks may be alike: the longest, of no more bytes, that all messages are made of without a rest,
// and as long ones as the longest message.
std::vector<std::size_t> other_slices(const Job& job) {
  const std::size_t chunk = even_chunk_bytes(job);
  if (chunk == 0) return {};
  std::set<std::uint32_t> lengths;
  for (const Step& step : job.schedule.program(0))
    if (step.action == Action::send) lengths.insert(step.chunks);
  if (lengths.empty() || *lengths.rbegin() * chunk <= job.options.slice_bytes) return {};
  std::vector<std::size_t> slices;
  for (std::size_t few = job.options.slice_bytes / chunk; few > 0; --few) {
    if (!std::ranges::all_of(lengths, [few](std::size_t length) { return length <= few || length % few == 0; }))
      continue;
    if (few * chunk < job.options.slice_bytes) slices.push_back(few * chunk);
    break;
  }
  slices.push_back(*lengths.rbegin() * chunk);
  return slices;
}

std::optional<SimulatedRun> by_other_slices(const Job& job) {
  for (const std::size_t slice : other_slices(job)) {
    SimulateOptions other = job.options;
    other.slice_bytes = slice;
    if (auto instance = folded({job.schedule, job.topology, job.count, job.element_bytes, other}))
      return in_a_row(*instance, other);
  }
  return std::nullopt;
}

// Whether groups of ranks communicate, each by itself.
bool is_divided(const SimulateOptions& options) {
  return std::ranges::count_if(options.grid, [](Rank size) { return size > 1; }) > 1;
}

std::size_t longest_message(const Job& job) {
  const std::size_t parts = moves_whole_vector(job.schedule.collective) ? job.schedule.chunks : 1;
  const std::size_t chunk = (job.count + parts - 1) / parts * job.element_bytes;
  std::uint32_t chunks = 0;
  for (const Step& step : job.schedule.program(0))
    if (step.action == Action::send) chunks = std::max(chunks, step.chunks);
  return chunk * chunks;
}

// The shortest slices of which all ranks send few enough messages; 0: there are none.
std::size_t slices_of_few(const Job& job) {
  const std::size_t longest = longest_message(job);
  if (longest <= job.options.slice_bytes) return 0;
  SimulateOptions whole_messages = job.options;
  whole_messages.slice_bytes = longest;
  const std::size_t messages = messages_of({job.schedule, job.topology, job.count, job.element_bytes, whole_messages},
                                           job.options.most_messages);
  return messages > job.options.most_messages ? 0
                                              : longest / (job.options.most_messages / messages) + job.element_bytes;
}

// Of all that is there.
std::size_t longest_copy(const Job& job) {
  const std::size_t parts = moves_whole_vector(job.schedule.collective) ? 1 : job.schedule.chunks;
  return job.count * job.element_bytes * parts;
}

// What would be simulated instead.
std::string remedy(const Job& job) {
  if (!job.options.fold) return "folding";
  if (job.options.most_messages == 0) return "an algorithm whose ranks are alike";  // nobody reads it
  if (job.options.crash) return "no crash";
  if (std::ranges::any_of(job.options.slowdown, [](double slower) { return slower != 1; })) return "no slow rank";
  if (const std::size_t slice = slices_of_few(job); slice > 0) return fmt::format("slices of {} bytes", slice);
  const auto serves = [&](const AlgorithmSpec& spec) {
    return std::ranges::count(spec.algorithm().collectives, job.schedule.collective) > 0;
  };
  // A ring is long, and folds on every star that is whole.
  if (links_of_star(job.topology) && !is_divided(job.options) && serves(parse_algorithm("ring")))
    return "algorithm ring";
  std::vector<std::string> algorithms;
  if (const auto dims = grid_dims(job.topology); dims.size() > 1)
    for (const auto* name : {"torus", "multi_dimensional"})
      algorithms.push_back(fmt::format("{}:{}", name, fmt::join(dims, "x")));
  for (const auto* name : {"recursive_doubling", "ring"}) algorithms.emplace_back(name);  // the sooner looked at first
  for (const auto& name : algorithms) {
    if (is_divided(job.options)) break;
    const AlgorithmSpec spec = parse_algorithm(name);
    if (!serves(spec)) continue;
    const Schedule other =
        spec.algorithm().build({.collective = job.schedule.collective, .world = job.schedule.world, .dims = spec.dims});
    // A short vector, whose chunks are all alike, which others nearly are.
    if (folded({other, job.topology, other.chunks, job.element_bytes, job.options}))
      return fmt::format("algorithm {}", name);
  }
  if (job.topology.switches != 1) return "topology star in place of it";
  const bool is_whole = job.topology.links.size() == 2 * static_cast<std::size_t>(job.topology.world);
  return is_whole ? "algorithm ring" : "all cables of the star";
}

[[noreturn]] void refuse(const Job& job) {
  throw Error(
      ErrorKind::usage,
      fmt::format("{} on {} does not look the same from each of its {} ranks, so that each has to be simulated, "
                  "which is done up to {}, or {} messages of all; try fewer ranks, or {}",
                  job.schedule.algorithm, job.topology.name, job.schedule.world, job.options.most_whole,
                  job.options.most_messages, remedy(job)));
}

bool divides(const std::vector<Rank>& grid, Rank world) {
  for (const Rank size : grid) {
    if (size < 1 || world % size != 0) return false;
    world /= size;
  }
  return world == 1;
}

void check(const Job& job) {
  const SimulateOptions& options = job.options;
  const Rank world = job.schedule.world;
  if (world != job.topology.world)
    throw Error(ErrorKind::usage,
                fmt::format("a schedule of {} ranks was put on topology {} of {} ranks; build both for "
                            "one world",
                            world, job.topology.name, job.topology.world));
  if (options.crash &&
      (options.crash->rank < 0 || options.crash->rank >= world || options.in_a_row > 1 || options.at_once > 1))
    throw Error(ErrorKind::usage,
                fmt::format("a crash of rank {} in {} operations; it is of one of the {} ranks, in one",
                            options.crash->rank, options.in_a_row * options.at_once, world));
  if (world > most_folded_ranks)
    throw Error(ErrorKind::usage,
                fmt::format("{} ranks are more than the {} that are simulated", world, most_folded_ranks));
  if (job.element_bytes == 0 || options.slice_bytes == 0 || options.buffered_slices == 0 || options.in_a_row == 0 ||
      options.at_once == 0)
    throw Error(
        ErrorKind::usage,
        fmt::format("elements of {} bytes in slices of {}, of which a link takes {}, and {} operations in a row, "
                    "{} at once, cannot be simulated; each is 1 at least",
                    job.element_bytes, options.slice_bytes, options.buffered_slices, options.in_a_row,
                    options.at_once));
  const auto is_factor = [](double slower) { return slower > 0 && std::isfinite(slower); };
  if (!options.slowdown.empty() &&
      (options.slowdown.size() != static_cast<std::size_t>(world) || !std::ranges::all_of(options.slowdown, is_factor)))
    throw Error(ErrorKind::usage, fmt::format("slowdown {} for {} ranks; give each its factor, above 0, or none any",
                                              fmt::join(options.slowdown, ","), world));
  if (!options.grid.empty() && !divides(options.grid, world))
    throw Error(ErrorKind::usage, fmt::format("grid {} does not divide {} ranks; give sizes that multiply to them",
                                              fmt::join(options.grid, "x"), world));
}

// Once for each network, which may have millions: what is simulated within another simulation has them from there.
void check_links(const Topology& topology) {
  for (const Link& link : topology.links)
    if (!(link.speed.bytes_per_second > 0) || link.speed.latency.count() < 0)
      throw Error(
          ErrorKind::usage,
          fmt::format("a link of topology {} has {} bytes a second and a latency of {} ns; give it a rate above "
                      "0, and a latency of 0 at least",
                      topology.name, link.speed.bytes_per_second, link.speed.latency.count()));
}

}  // namespace

std::size_t even_chunk_bytes(const Job& job) {
  if (!moves_whole_vector(job.schedule.collective)) return job.count * job.element_bytes;
  return job.count % job.schedule.chunks == 0 ? job.count / job.schedule.chunks * job.element_bytes : 0;
}

std::size_t messages_of_rank(const Job& job, Rank rank) {
  const Schedule& schedule = job.schedule;
  const double parts = moves_whole_vector(schedule.collective) ? schedule.chunks : 1;
  const double chunk_bytes = static_cast<double>(job.count * job.element_bytes) / parts;
  double messages = 0;
  for (const Step& step : schedule.program(rank))
    if (step.action == Action::send)
      messages += std::max(1.0, std::ceil(chunk_bytes * step.chunks / static_cast<double>(job.options.slice_bytes)));
  return static_cast<std::size_t>(std::min(messages, 1e18));
}

bool is_one_by_itself(const SimulateOptions& options) {
  return !options.trace && !options.crash && options.in_a_row == 1 && options.at_once == 1;
}

SimulatedRun simulate(const Job& job) {
  check(job);
  const SimulateOptions& options = job.options;
  if (job.schedule.world == 1 && longest_copy(job) > options.slice_bytes) {
    // Which sends nothing, and is slices of copies without number.
    SimulateOptions in_one = options;
    in_one.slice_bytes = longest_copy(job);
    SimulatedRun alone = simulate({job.schedule, job.topology, job.count, job.element_bytes, in_one});
    alone.slice_bytes = options.slice_bytes;
    return alone;
  }
  const std::size_t chunk_bytes = even_chunk_bytes(job);
  const bool streams = !job.as_long && is_one_by_itself(options) && chunk_bytes / long_chunk >= options.slice_bytes;
  const auto by_fewer_slices = [&] {
    return streamed(job.schedule, job.topology, chunk_bytes / job.element_bytes, job.element_bytes, options);
  };
  if (const std::size_t messages = streams ? messages_of_rank(job, 0) : 0; messages > few_messages) {
    // So many in each slice that some slices of them are too many.
    if (options.fold && messages / (chunk_bytes / options.slice_bytes) > few_messages / long_chunk) {
      if (auto found = by_other_slices(job)) return *found;
      if (job.schedule.world > options.most_whole) refuse(job);
    }
    return by_fewer_slices();
  }
  if (options.fold)
    if (auto instance = folded(job)) return in_a_row(*instance, options);
  const bool is_small = job.schedule.world <= options.most_whole;
  const std::size_t most = is_small ? most_of_small_worlds : options.most_messages;
  const std::size_t messages = messages_of(job, most);
  const bool is_whole = messages <= most;
  if (streams && is_small && messages > few_messages) return by_fewer_slices();
  if (is_whole && (is_small || messages <= few_messages)) return in_a_row(whole(job), options);
  // Who plans has no time for more.
  if (options.fold) {
    if (auto found = by_first_rounds(job)) return *found;
    if (options.most_messages > 0) {
      if (auto found = by_other_slices(job)) return *found;
      if (auto found = by_smaller_worlds(job)) return *found;
      Job slowly = job;
      slowly.most_folded = most_messages;
      if (auto instance = folded(slowly)) return in_a_row(*instance, options);
    }
  }
  if (is_whole) return in_a_row(whole(job), options);
  refuse(job);
}

}  // namespace ranvier::plan

namespace ranvier {

SimulatedRun simulate(const Schedule& schedule, const Topology& topology, std::size_t count, std::size_t element_bytes,
                      const SimulateOptions& options) {
  if (topology.world > 1) plan::check_links(topology);
  return plan::simulate({schedule, topology, count, element_bytes, options});
}

}  // namespace ranvier
