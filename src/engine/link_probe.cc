#include "engine/link_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

namespace ranvier::engine {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t tiny = 4;  // bytes, or as many as there are ranks with a number each
// Bytes of all ranks together, larger and larger while an operation takes less than `long_enough`.
constexpr std::array<std::size_t, 3> many{16 << 10, 64 << 10, 256 << 10};
constexpr double long_enough = 1e-3;  // seconds
constexpr double batch = 1e-3;        // seconds of operations that are timed together, …
constexpr int most_in_batch = 64;     // … unless they are as many
constexpr int batches = 4;

// Classes, from the nominal number. No link is so much faster: what comes out lower has drowned in noise.
constexpr std::int64_t least_class = -3;
constexpr std::int64_t most_class = 24;

class Prober {
 public:
  Prober(const LinkModel& nominal, const ProbedWorld& world, const std::function<void(const Request&)>& run)
      : nominal_(nominal), world_(world), run_(run) {}

  LinkModel measure() {
    // Whole vectors between pairs, and parts between all pairs at once: the one has more rounds, the other more
    // messages.
    const ProbeSample pairs = sample(Collective::all_reduce, "recursive_doubling", tiny);
    const ProbeSample everybody = sample(Collective::all_gather, "direct", tiny);
    ProbeSample stored, added;
    for (const std::size_t bytes : many) {
      stored = sample(Collective::all_gather, "direct", bytes);
      added = sample(Collective::reduce_scatter, "direct", bytes);
      if (added.seconds > long_enough) break;
    }
    LinkModel found = fit_links(nominal_, {.pairs = pairs, .everybody = everybody, .stored = stored, .added = added});
    found.byte = std::max(found.byte, world_.least_seconds_per_byte);
    return rounded(found);
  }

 private:
  ProbeSample sample(Collective collective, std::string_view algorithm, std::size_t bytes) {
    const ScheduleCost cost(
        find_algorithm(algorithm, collective).build({.collective = collective, .world = world_.world}));
    // Whole vectors are `bytes` long on every rank; else each rank has a part.
    const auto ranks = static_cast<std::size_t>(world_.world);
    const std::size_t all = std::max(bytes / sizeof(float) / ranks, std::size_t{1}) * ranks;
    const bool gathers = collective == Collective::all_gather, scatters = collective == Collective::reduce_scatter;
    input_.resize(std::max(input_.size(), all));
    output_.resize(std::max(output_.size(), all));
    const Request request{.collective = collective,
                          .input = ConstTypedSpan(input_.data(), gathers ? all / ranks : all, DType::f32),
                          .output = TypedSpan(output_.data(), scatters ? all / ranks : all, DType::f32),
                          .algorithm = algorithm};
    const std::size_t sent = all * sizeof(float);
    return {.seconds = time(request),
            .rounds = cost.rounds(),
            .work = nominal_.crowded ? cost.mean(sent, world_.slice_bytes) : cost.busiest(sent, world_.slice_bytes)};
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
    const int times = static_cast<int>(std::clamp(batch / first, 1.0, static_cast<double>(most_in_batch)));
    double least = first;
    for (int i = 0; i < batches; ++i) least = std::min(least, seconds_of(times));
    return slowest(least);
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
    for (double LinkModel::*const number :
         {&LinkModel::round, &LinkModel::message, &LinkModel::byte, &LinkModel::reduce}) {
      const double ratio = std::max(found.*number / (nominal_.*number), std::ldexp(1, least_class));
      const auto own = static_cast<std::int64_t>(std::lround(std::log2(ratio)));
      result.*number = std::ldexp(nominal_.*number, static_cast<int>(slowest(std::min(own, most_class))));
    }
    return result;
  }

  const LinkModel& nominal_;
  const ProbedWorld& world_;
  const std::function<void(const Request&)>& run_;
  std::vector<float> input_, output_;
};

// α and o, from r α + m o = t of both samples. Where one round is one message, as with two ranks, they cannot be told
// apart, nor need they be: every algorithm has as many of the one as of the other.
void fit_latency(LinkModel& found, const ProbeSample& pairs, const ProbeSample& everybody) {
  const double determinant = pairs.rounds * everybody.work.messages - everybody.rounds * pairs.work.messages;
  if (std::abs(determinant) > 0.5) {
    found.round = (pairs.seconds * everybody.work.messages - everybody.seconds * pairs.work.messages) / determinant;
    found.message = (everybody.seconds * pairs.rounds - pairs.seconds * everybody.rounds) / determinant;
  } else {
    const double scale = pairs.seconds / (pairs.rounds * found.round + pairs.work.messages * found.message);
    found.round *= scale;
    found.message *= scale;
  }
}

// What is left of a sample's time when all that is known already has been taken away.
double rest(const LinkModel& known, const ProbeSample& sample) {
  return sample.seconds - known.round * sample.rounds - known.message * sample.work.messages -
         known.byte * sample.work.bytes;
}

}  // namespace

LinkModel fit_links(const LinkModel& nominal, const ProbeSamples& samples) {
  LinkModel found = nominal;
  fit_latency(found, samples.pairs, samples.everybody);
  found.byte = 0;
  found.byte = rest(found, samples.stored) / samples.stored.work.bytes;
  found.reduce = rest(found, samples.added) / samples.added.work.reduced;
  return found;
}

LinkModel nominal_links(std::string_view transport, bool crowded) {
  const bool shared_memory = transport == "shm" || transport == "loopback";
  LinkModel model = shared_memory ? LinkModel{.round = 100e-9, .message = 30e-9, .byte = 0.04e-9, .reduce = 0.03e-9}
                                  : LinkModel{.round = 6e-6, .message = 1e-6, .byte = 0.2e-9, .reduce = 0.05e-9};
  model.crowded = crowded;
  return model;
}

LinkModel measure_links(const LinkModel& nominal, const ProbedWorld& world,
                        const std::function<void(const Request&)>& run) {
  return Prober(nominal, world, run).measure();
}

}  // namespace ranvier::engine
