// The search: everything is tried, since simulating a step takes milliseconds.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "ranvier/error.h"
#include "ranvier/plan.h"

namespace ranvier {
namespace {

// Nothing, and why in `refusal`, where the algorithm cannot serve this world or network.
template <class Call>
auto if_possible(Call call, std::string& refusal) -> std::optional<decltype(call())> {
  try {
    return call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    refusal = error.what();
    return std::nullopt;
  }
}

[[noreturn]] void refuse(const std::string& last) {
  throw Error(ErrorKind::usage, fmt::format("no algorithm serves this network; the last one: {}", last));
}

std::vector<std::string> algorithms_of(const PlanSearch& search, const CodecSpeed& codec) {
  if (!codec.summable) return {"direct"};
  std::vector<std::string> result = search.algorithms;
  if (!search.by_size.empty()) result.emplace_back(by_size);
  return result;
}

}  // namespace

StepSimulation with_codec(StepSimulation how, const CodecSpeed& codec, Rank world) {
  double codec_ns = codec.encode_ns_per_byte + codec.decode_ns_per_byte;
  if (!codec.summable) {
    // The owner of a part decodes what all others send it and codes the sum, which all others decode.
    const double others = static_cast<double>(world - 1) / world;
    codec_ns = codec.encode_ns_per_byte * (1 + 1.0 / world) + 2 * others * codec.decode_ns_per_byte;
    how.algorithm = "direct";
    how.by_size.clear();
  }
  how.bucket_bytes *= codec.wire_bytes;
  how.gradient_scale = codec.wire_bytes;
  how.codec_ns_per_byte = codec_ns / codec.wire_bytes;
  return how;
}

std::vector<PlanChoice> rank_plans(const Workload& workload, const Topology& topology, const PlanSearch& search) {
  std::vector<PlanChoice> choices;
  std::string refusal = "none was named";
  for (const CodecSpeed& codec : search.codecs)
    for (const std::string& algorithm : algorithms_of(search, codec))
      for (const double bucket : search.bucket_bytes) {
        StepSimulation how{.algorithm = algorithm, .bucket_bytes = bucket, .options = search.options};
        if (algorithm == by_size) {
          how.algorithm = search.by_size.back().algorithm;
          how.by_size = search.by_size;
        }
        how = with_codec(std::move(how), codec, topology.world);
        auto step = if_possible([&] { return simulate_step(workload, topology, how); }, refusal);
        if (!step) break;  // other buckets will not help
        choices.push_back({algorithm, bucket, codec.spec, std::move(*step)});
      }
  if (choices.empty()) refuse(refusal);
  std::stable_sort(choices.begin(), choices.end(),
                   [](const PlanChoice& a, const PlanChoice& b) { return a.step.step_ns < b.step.step_ns; });
  return choices;
}

std::vector<FastestAlgorithm> fastest_algorithms(const Topology& topology, const std::vector<std::string>& algorithms,
                                                 std::size_t most_bytes, const SimulateOptions& options) {
  constexpr std::size_t element_bytes = 4;
  std::vector<Schedule> schedules;
  std::vector<std::string> names;
  std::string refusal = "none was named";
  for (const std::string& name : algorithms) {
    const AlgorithmSpec spec = parse_algorithm(name);
    auto schedule = if_possible(
        [&] {
          return find_algorithm(spec.algorithm().name, Collective::all_reduce)
              .build({.collective = Collective::all_reduce, .world = topology.world, .dims = spec.dims});
        },
        refusal);
    if (!schedule) continue;
    schedules.push_back(std::move(*schedule));
    names.push_back(name);
  }
  std::vector<FastestAlgorithm> table;
  for (std::size_t bytes = element_bytes; bytes <= most_bytes; bytes *= 2) {
    std::optional<std::size_t> best;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < schedules.size(); ++i) {
      const auto run = if_possible(
          [&] { return simulate(schedules[i], topology, bytes / element_bytes, element_bytes, options); }, refusal);
      // As fast within rounding: the earlier one stays.
      if (!run || run->ns >= least * (1 - 1e-9)) continue;
      best = i;
      least = run->ns;
    }
    if (!best) refuse(refusal);
    if (!table.empty() && table.back().algorithm == names[*best])
      table.back() = {bytes, names[*best], least};
    else
      table.push_back({bytes, names[*best], least});
  }
  if (table.empty()) refuse(refusal);
  table.back().up_to = std::numeric_limits<std::size_t>::max();
  return table;
}

}  // namespace ranvier
