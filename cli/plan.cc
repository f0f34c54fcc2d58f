// ranvier plan: how to communicate, by simulating every way.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "machine.h"
#include "output.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"
#include "ranvier/plan.h"
#include "ranvier/text.h"
#include "ranvier/tuning.h"
#include "simulate/network.h"

namespace ranvier::cli {
namespace {

using nlohmann::json;

constexpr auto examples = R"(
Every algorithm, bucket size and codec is simulated on the network that is described; codecs at the speed that they have on
this machine. --tuning writes which algorithm is the fastest at which size, as bench --tune does by measuring:
RANVIER_TUNING or --tuning of other commands then follow it.

Examples:
  ranvier plan --workload resnet50 --world 8 --link-rate 10Gbit
  ranvier plan --workload llama3-8b --world 64 --topology torus:8x8 --link-rate 100Gbit --tuning tuning.txt
)";

constexpr std::array<std::string_view, 3> codec_specs{"bf16", "int8", "hadamard:32+int4"};

// How long the codec takes on values like gradients, the best of a few samples: other programs only ever slow it down.
CodecSpeed measure(std::string_view spec) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t count = 1 << 20;
  constexpr int samples = 5;
  const auto codec = make_codec(spec);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 1000) * 1e-4F - 0.05F;
  std::vector<std::byte> code(codec->max_bytes(count));
  std::size_t bytes = 0;
  auto least = std::chrono::nanoseconds::max();
  for (int i = 0; i < samples; ++i) {
    const auto begin = Clock::now();
    bytes = codec->encode(values, {}, code, {});
    codec->decode(ConstBytes(code).first(bytes), values);
    least = std::min<std::chrono::nanoseconds>(least, Clock::now() - begin);
  }
  constexpr double gradient_bytes = count * sizeof(float);
  return {.spec = std::string(spec),
          .wire_bytes = static_cast<double>(bytes) / gradient_bytes,
          .ns_per_byte = static_cast<double>(least.count()) / gradient_bytes};
}

std::string bucket_text(double bytes) {
  return bytes > 1e15 ? "one bucket" : fmt::format("{:.0f} MB buckets", bytes / 1e6);
}

std::string describe(const PlanChoice& choice) {
  return fmt::format("{}, {}, {}", choice.algorithm, bucket_text(choice.bucket_bytes),
                     choice.codec.empty() ? "no codec" : choice.codec);
}

// "at 10 Gbit/s bf16 loses 4 %: off"
std::string verdict(const std::vector<PlanChoice>& ranked, std::string_view codec, double bytes_per_second) {
  const auto best_with = [&](std::string_view spec) {
    return std::find_if(ranked.begin(), ranked.end(), [&](const PlanChoice& choice) { return choice.codec == spec; });
  };
  const double plain = best_with("")->step.step_ns;
  const double coded = best_with(codec)->step.step_ns;
  const double gain = (plain / coded - 1) * 100;
  return fmt::format("at {:g} Gbit/s {} {} {:.1f} %: {}", bytes_per_second * 8e-9, codec, gain > 0 ? "gains" : "loses",
                     std::abs(gain), gain > 0 ? "on" : "off");
}

json to_json(const PlanChoice& choice) {
  return {{"algorithm", choice.algorithm},
          {"bucket_bytes", choice.bucket_bytes > 1e15 ? json() : json(choice.bucket_bytes)},
          {"codec", choice.codec},
          {"step_ns", choice.step.step_ns},
          {"exposed_communication_ns", choice.step.exposed_communication_ns}};
}

}  // namespace

int run_plan(const Arguments& arguments) {
  CLI::App app("Choose how to communicate: algorithm, bucket and codec for a workload on a network.", "ranvier plan");
  app.footer(examples);
  simulation::NetworkOptions network;
  std::string workload_name, tuning_path, json_path, transport = "tcp";
  std::optional<std::uint64_t> world;
  app.add_option("--workload", workload_name, fmt::format("what is trained: {}", fmt::join(workload_names(), ", ")))
      ->type_name("NAME");
  add_count(app, "--world", world, "how many ranks", 2, 1 << 20);
  network.add_to(app);
  app.add_option("--tuning", tuning_path, "write the fastest algorithm by size there")->type_name("FILE");
  add_name(app, "--transport", transport, "of --tuning: what its rows are for", {"tcp", "shm"});
  app.add_option("--json", json_path, "write all choices there; - is stdout, in place of the text")->type_name("FILE");
  if (const auto code = parse(app, arguments)) return *code;
  if (!world) throw Error(ErrorKind::usage, "plan needs --world, such as --world 8");
  if (workload_name.empty()) throw Error(ErrorKind::usage, "plan needs --workload: what is to be sent");
  network.check();

  const JsonFile file(json_path);
  const ResultFile tuning(tuning_path, "--tuning");
  const Topology topology = network.topology(static_cast<Rank>(*world));
  PlanSearch search;
  for (const auto name : simulation::all_reduce_algorithms()) search.algorithms.emplace_back(name);
  for (const auto spec : codec_specs) search.codecs.push_back(measure(spec));
  const auto ranked = rank_plans(make_workload(workload_name), topology, search);

  const PlanChoice& best = ranked.front();
  // The runner-up is the best that differs in more than the size of its buckets.
  const auto second = std::find_if(ranked.begin(), ranked.end(), [&](const PlanChoice& choice) {
    return choice.algorithm != best.algorithm || choice.codec != best.codec;
  });
  std::vector<std::string> verdicts;
  for (const auto codec : codec_specs) verdicts.push_back(verdict(ranked, codec, network.bytes_per_second()));
  if (json_path != "-") {
    fmt::print("# {} on {} of {} ranks\n", workload_name, network.spec(), *world);
    fmt::print("chosen  {}: a step of {:.4f} ms, {:.4f} of them waiting for the network\n", describe(best),
               best.step.step_ns / 1e6, best.step.exposed_communication_ns / 1e6);
    if (second != ranked.end())
      fmt::print("second  {}: {:.1f} % longer\n", describe(*second),
                 (second->step.step_ns / best.step.step_ns - 1) * 100);
    for (const auto& sentence : verdicts) fmt::print("codec   {}\n", sentence);
  }
  if (!tuning_path.empty()) {
    constexpr std::size_t most_bytes = std::size_t{64} << 20;
    TuningTable table;
    std::vector<TuningRow> rows;
    for (const auto& each : fastest_algorithms(topology, search.algorithms, most_bytes))
      rows.push_back({.collective = Collective::all_reduce,
                      .transport = transport,
                      .ranks = topology.world,
                      .up_to = each.up_to,
                      .algorithm = each.algorithm});
    table.replace(rows);
    tuning.write(table.text());
  }
  json choices = json::array();
  for (const auto& choice : ranked) choices.push_back(to_json(choice));
  file.write({{"choices", choices}, {"verdicts", verdicts}, {"environment", environment()}});
  return 0;
}

}  // namespace ranvier::cli
