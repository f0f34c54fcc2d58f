#include "engine/link_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "ranvier/kernel.h"

namespace ranvier::engine {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t tiny_bytes = 4;  // bytes, or as many as there are ranks with a number each
// Bytes of all ranks together, larger and larger while an operation takes less than is enough.
constexpr std::array<std::size_t, 5> many{16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
constexpr std::size_t most_in_host = 256 << 10;
constexpr double enough_in_host = 1e-3;  // seconds
// Lines let what they have saved up pass at once (token buckets), some milliseconds' worth. By 256 KiB on lines of 100
// and 200 Mbit/s a byte took a half to a thousandth of what it takes for long.
constexpr double enough_between_hosts = 10e-3;
constexpr double batch = 1e-3;            // seconds of operations that are timed together, …
constexpr int most_probes_in_batch = 64;  // … unless they are as many
constexpr int batches = 4;                // one of operations that take so long that little disturbs them

// Pairs exchange one after another: beside what one sends to another over a slow line, the first words of messages to
// all others would wait.
constexpr Rank most_in_pairs = 8;
constexpr int looks_at_pair = 2;
// A line is slower than another from 4 times on; less is what one measurement on a busy host may be off.
constexpr std::int64_t least_apart = 2;  // classes
constexpr std::int64_t most_apart = 10;

// Classes, from the nominal number. No link is so much faster: what comes out lower has drowned in noise.
constexpr std::int64_t least_class = -3;
constexpr std::int64_t most_class = 24;

double seconds_of_messages(const LinkModel& links, const ProbeSample& sample) {
  return links.latency * sample.depth + links.message * sample.work.messages;
}

class Prober {
 public:
  Prober(const LinkModel& nominal, const ProbedWorld& world, const std::function<void(const Request&)>& run)
      : nominal_(nominal), world_(world), run_(run) {}

  LinkModel measure() {
    const ProbeSample least = sample(Collective::all_reduce, "recursive_doubling", tiny_bytes);
    messages_cost_ = least.seconds / seconds_of_messages(nominal_, least);
    LinkModel found;
    std::vector<double> lines;
    if (world_.ranks_per_node > 0) {
      const auto inside = most_of([&](std::size_t bytes) { return exchange(bytes, true); });
      const auto across = most_of([&](std::size_t bytes) { return exchange(bytes, false); });
      found = fit_nodes(nominal_, least, inside, across, seconds_to_add());
    } else {
      const auto most = most_of([&](std::size_t bytes) { return sample(Collective::all_gather, "direct", bytes); });
      found = fit_links(nominal_, least, most, seconds_to_add());
      const bool is_near = least.seconds < enough_between_hosts;  // else each look would take several round trips
      if (world_.hosts_apart && is_near && world_.world > 2 && world_.world <= most_in_pairs)
        lines = lines_of(static_cast<std::size_t>(most.work.bytes));
    }
    found.byte = std::max(found.byte, world_.least_seconds_per_byte);
    LinkModel result = rounded(found);
    result.lines = std::move(lines);
    return result;
  }

 private:
  // With as many bytes as take long enough. On a long path every operation takes long, and few bytes no longer than
  // none.
  template <class Sample>
  ProbeSample most_of(const Sample& sample) {
    ProbeSample most;
    for (const std::size_t bytes : many) {
      most = sample(bytes);
      const double of_bytes = most.seconds - messages_cost_ * seconds_of_messages(nominal_, most);
      if (world_.on_one_host ? most.seconds > enough_in_host : of_bytes > enough_between_hosts) break;
      if (world_.on_one_host && bytes == most_in_host) break;
    }
    return most;
  }

  // Each rank sends the ranks of its node a share of `bytes` each; or all of them to the rank in its place on the next
  // node, where there is one. So all lines are in use, and every rank has the same to do, but on a last node with
  // fewer.
  ProbeSample exchange(std::size_t bytes, bool inside) {
    const Rank per_node = world_.ranks_per_node;
    const Rank nodes = (world_.world + per_node - 1) / per_node;
    const std::size_t count = bytes / sizeof(float);
    const auto elements = [&](Rank from, Rank to) -> std::size_t {
      if (inside)
        return from / per_node == to / per_node && from != to ? count / static_cast<std::size_t>(per_node) : 0;
      return from % per_node == to % per_node && (from / per_node + 1) % nodes == to / per_node ? count : 0;
    };
    std::vector<std::size_t> to_each, from_each;
    for (Rank peer = 0; peer < world_.world; ++peer) {
      to_each.push_back(elements(world_.rank, peer));
      from_each.push_back(elements(peer, world_.rank));
    }
    const auto mates = static_cast<std::size_t>(per_node);
    const auto sent = static_cast<double>((inside ? count / mates * (mates - 1) : count) * sizeof(float));
    return {.seconds = time(exchange_of(to_each, from_each)),
            .depth = 1,
            .work = {.messages = static_cast<double>(world_.world - 1),
                     .bytes = sent,
                     .between = inside ? 0 : sent * streams_across(world_)}};
  }

  // As LinkModel has them. Neighbours in a ring of all ranks exchange so many bytes, which takes as long as the slower
  // line of both; so of a line is known what the faster neighbour lets it show.
  std::vector<double> lines_of(std::size_t bytes) {
    double own = std::numeric_limits<double>::infinity();
    for (Rank first = 0; first < world_.world; ++first) {
      const Rank second = (first + 1) % world_.world;
      const bool takes_part = world_.rank == first || world_.rank == second;
      std::vector<std::size_t> shares(static_cast<std::size_t>(world_.world));
      if (takes_part) shares[static_cast<std::size_t>(world_.rank == first ? second : first)] = bytes / sizeof(float);
      for (int i = 0; i < looks_at_pair; ++i) {
        slowest(0.0F);  // all begin
        const auto start = steady_clock::now();
        run_(exchange_of(shares, shares));
        if (takes_part) own = std::min(own, std::chrono::duration<double>(steady_clock::now() - start).count());
      }
    }
    std::vector<std::int64_t> classes(static_cast<std::size_t>(world_.world));
    const auto faster = static_cast<std::int64_t>(std::log2(slowest(own) / own));
    classes[static_cast<std::size_t>(world_.rank)] = std::min(faster, most_apart);
    run_({.input = classes, .output = classes, .op = ReduceOp::max});
    if (std::ranges::max(classes) < least_apart) return {};
    std::vector<double> lines;
    for (const std::int64_t each : classes) lines.push_back(std::ldexp(1, static_cast<int>(-each)));
    return lines;
  }

  // So many elements to each rank, and from each. Its memory stays this object's.
  Request exchange_of(const std::vector<std::size_t>& to_each, const std::vector<std::size_t>& from_each) {
    const auto total = [](const std::vector<std::size_t>& counts) {
      return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    };
    input_.resize(std::max(input_.size(), total(to_each)));
    output_.resize(std::max(output_.size(), total(from_each)));
    return {.collective = Collective::all_to_all,
            .input = ConstTypedSpan(input_.data(), total(to_each), DType::f32),
            .output = TypedSpan(output_.data(), total(from_each), DType::f32),
            .input_splits = to_each,
            .output_splits = from_each,
            .algorithm = "direct"};
  }

  ProbeSample sample(Collective collective, std::string_view algorithm, std::size_t bytes) {
    const ScheduleCost cost(
        find_algorithm(algorithm, collective).build({.collective = collective, .world = world_.world}));
    // Whole vectors are `bytes` long on every rank; else each rank has a part.
    const auto ranks = static_cast<std::size_t>(world_.world);
    const std::size_t all = std::max(bytes / sizeof(float) / ranks, std::size_t{1}) * ranks;
    const bool gathers = collective == Collective::all_gather;
    input_.resize(std::max(input_.size(), all));
    output_.resize(std::max(output_.size(), all));
    const Request request{.collective = collective,
                          .input = ConstTypedSpan(input_.data(), gathers ? all / ranks : all, DType::f32),
                          .output = TypedSpan(output_.data(), all, DType::f32),
                          .algorithm = algorithm};
    return {.seconds = time(request),
            .depth = cost.depth(),
            .work = decisive(nominal_, cost, all * sizeof(float), world_.slice_bytes)};
  }

  // Operations one after another, as collectives come, so that no rank's lead makes one look short; the least of a few
  // batches, since whatever disturbs makes them longer.
  double time(const Request& request) {
    const auto seconds_of = [&](int times) {
      const auto start = steady_clock::now();
      for (int i = 0; i < times; ++i) run_(request);
      return std::chrono::duration<double>(steady_clock::now() - start).count() / times;
    };
    seconds_of(1);  // makes its program, and the pages of its memory
    const double first = slowest(seconds_of(1));
    const int times = static_cast<int>(std::clamp(batch / first, 1.0, static_cast<double>(most_probes_in_batch)));
    double least = first;
    for (int i = 0; i < (first > enough_between_hosts ? 1 : batches); ++i) least = std::min(least, seconds_of(times));
    return slowest(least);
  }

  // A byte, more than copying it takes, in a cache's reach: where slices of a vector are when they are added up.
  static double seconds_to_add() {
    constexpr std::size_t count = 16 << 10;
    std::vector<float> to(count), from(count);
    const auto least = [](const auto& loop) {
      double seconds = 1;
      for (int i = 0; i < 16; ++i) {
        const auto start = steady_clock::now();
        loop();
        seconds = std::min(seconds, std::chrono::duration<double>(steady_clock::now() - start).count());
      }
      return seconds;
    };
    const auto add = kernel::reduce_function(ReduceOp::sum, DType::f32);
    const double adding = least([&] { add(to.data(), to.data(), from.data(), count, 0); });
    const double copying = least([&] { std::memcpy(to.data(), from.data(), count * sizeof(float)); });
    return (adding - copying) / (count * sizeof(float));
  }

  template <class T>
  T slowest(T own) {
    std::array<T, 1> most{own};
    run_({.input = most, .output = most, .op = ReduceOp::max});
    return most[0];
  }

  // As a power of two times the nominal number. Whole numbers, of the slowest rank, so that all ranks have the same
  // model whatever their libraries make of a logarithm.
  LinkModel rounded(const LinkModel& found) {
    LinkModel result = nominal_;
    const auto round = [&](double LinkModel::*number, double scale) {
      const double ratio = std::max(found.*number / scale, std::ldexp(1, least_class));
      const auto own = static_cast<std::int64_t>(std::lround(std::log2(ratio)));
      result.*number = std::ldexp(scale, static_cast<int>(slowest(std::min(own, most_class))));
    };
    for (double LinkModel::*const number :
         {&LinkModel::latency, &LinkModel::message, &LinkModel::byte, &LinkModel::reduce})
      round(number, nominal_.*number);
    if (world_.ranks_per_node > 0) round(&LinkModel::between, nominal_.byte);
    return result;
  }

  const LinkModel& nominal_;
  const ProbedWorld& world_;
  const std::function<void(const Request&)>& run_;
  std::vector<float> input_, output_;
  double messages_cost_ = 0;  // by the nominal one
};

}  // namespace

LinkModel fit_links(const LinkModel& nominal, const ProbeSample& tiny, const ProbeSample& large,
                    double reduce_seconds_per_byte) {
  LinkModel found = nominal;
  const double scale = tiny.seconds / seconds_of_messages(nominal, tiny);
  found.latency *= scale;
  found.message *= scale;
  found.byte = (large.seconds - seconds_of_messages(found, large)) / large.work.bytes;
  // Memory that is slow to move bytes through is slow to add them from.
  found.reduce = std::max(reduce_seconds_per_byte, found.byte * nominal.reduce / nominal.byte);
  return found;
}

LinkModel fit_nodes(const LinkModel& nominal, const ProbeSample& tiny, const ProbeSample& inside,
                    const ProbeSample& across, double reduce_seconds_per_byte) {
  LinkModel found = fit_links(nominal, tiny, inside, reduce_seconds_per_byte);
  const double of_memory = std::max(found.byte, 0.0) * across.work.bytes;
  found.between = (across.seconds - seconds_of_messages(found, across) - of_memory) / across.work.between;
  return found;
}

LinkModel nominal_links(std::string_view transport, bool crowded) {
  const bool shared_memory = transport == "shm" || transport == "loopback";
  LinkModel model;
  // Where ranks share cores, a message costs those who handle it more than the time that it takes to arrive: somebody
  // has to be put aside for that.
  if (shared_memory)
    model = crowded ? LinkModel{.latency = 3e-6, .message = 0.5e-6, .byte = 0.12e-9, .reduce = 0.03e-9}
                    : LinkModel{.latency = 90e-9, .message = 30e-9, .byte = 0.03e-9, .reduce = 0.0075e-9};
  else
    // Streams of several senders meet in front of a receiver (incast), and each new partner's has to find its rate
    // again: of what a ring carries between 4 and 8 hosts at 1 Gbit/s, algorithms with 2, 3 and 7 partners carried 94,
    // 81 and 65 % by bbr, by cubic with 3, 4 and 7 partners 99, 91 and 74 % of 1 MiB, by reno all of it. Where all
    // ranks stand on one host, nothing meets but copies.
    model = crowded
                ? LinkModel{.latency = 1e-6, .message = 13e-6, .byte = 0.6e-9, .reduce = 0.15e-9}
                : LinkModel{.latency = 4.5e-6, .message = 1.5e-6, .byte = 0.2e-9, .reduce = 0.05e-9, .partner = 0.08};
  model.crowded = crowded;
  return model;
}

Rank streams_across(const ProbedWorld& world) {
  const bool of_two = world.world <= 2 * world.ranks_per_node;
  return of_two ? std::min(world.ranks_per_node, world.world - world.ranks_per_node) : world.ranks_per_node;
}

LinkModel measure_links(const LinkModel& nominal, const ProbedWorld& world,
                        const std::function<void(const Request&)>& run) {
  return Prober(nominal, world, run).measure();
}

}  // namespace ranvier::engine
