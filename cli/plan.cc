// ranvier plan: how to communicate, by simulating every way.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "machine.h"
#include "output.h"
#include "plan/codec_speed.h"
#include "plan/words.h"
#include "ranvier/error.h"
#include "ranvier/plan.h"
#include "ranvier/plan_file.h"
#include "ranvier/tuning.h"
#include "simulate/network.h"
#include "simulate/workload.h"

namespace ranvier::cli {
namespace {

using nlohmann::json;

constexpr auto examples = R"(
Every algorithm, bucket size and codec is simulated on the network that is described; codecs at the speed that they have on
this machine. --output writes the choice as a file that ranvier train --plan obeys. --tuning writes which algorithm is the
fastest at which size, as bench --tune does by measuring: RANVIER_TUNING or --tuning of other commands then follow it.

Examples:
  ranvier plan --workload resnet50 --world 8 --link-rate 10Gbit
  ranvier plan --workload recorded/workload.toml --topology topology.toml --output plan.toml
  ranvier plan --workload llama3-8b --world 64 --topology torus:8x8 --link-rate 100Gbit --tuning tuning.txt
)";

constexpr std::array<std::string_view, 3> codec_specs{"bf16", "int8", "hadamard:32+int4"};

// Up to the size of all gradients, within reason: what is longer takes the same algorithm.
std::size_t most_bytes_of_a_table(double gradients) {
  return std::bit_ceil(static_cast<std::size_t>(std::clamp(gradients, 1e6, 64e6)));
}

struct Settings {
  std::string workload;
  std::string transport;
  std::optional<std::uint64_t> world;
  simulation::NetworkOptions network;
  std::string output;
  std::string tuning;
  std::string json;
};

double gradient_bytes(const Workload& workload) {
  double bytes = 0;
  for (const Layer& layer : workload.layers)
    for (const Communication& each : layer.weight_gradient.communications) bytes += each.bytes;
  return bytes;
}

// Sizes that double, down from all gradients at once: more buckets than that cost more than they hide.
std::vector<double> bucket_sizes(double bytes) {
  constexpr double least = 64e3;
  constexpr double most = 200e6;
  std::vector<double> sizes;
  for (double size = least; size < std::min(bytes, most); size *= size < 1e6 ? 4 : 5) sizes.push_back(size);
  sizes.push_back(1e18);
  return sizes;
}

Plan plan_of(const PlanChoice& best, const PlanSearch& search, const Workload& workload, const Settings& settings,
             Rank world) {
  Plan plan{.workload = settings.workload, .network = settings.network.spec(), .ranks = world};
  plan.transport = settings.transport;
  if (!best.codec.empty()) plan.compress = best.codec;
  plan.bucket_bytes = static_cast<std::size_t>(std::max(1.0, std::min(best.bucket_bytes, gradient_bytes(workload))));
  // Codes that cannot be added do not take an all_reduce; what else there is (losses) takes the fastest of its size.
  const bool codes_are_added = std::ranges::find(search.codecs, best.codec, &CodecSpeed::spec)->summable;
  plan.all_reduce = search.by_size;
  if (best.algorithm != by_size && codes_are_added)
    plan.all_reduce = {{.up_to = TuningRow::max, .algorithm = best.algorithm}};
  plan.step_ns = best.step.step_ns;
  plan.compute_ns = best.step.compute_ns;
  plan.exposed_communication_ns = best.step.exposed_communication_ns;
  return plan;
}

TuningTable table_of(const std::vector<FastestAlgorithm>& found, const std::string& transport, Rank world) {
  std::vector<TuningRow> rows;
  for (const auto& each : found)
    rows.push_back({.collective = Collective::all_reduce,
                    .transport = transport,
                    .ranks = world,
                    .up_to = each.up_to,
                    .algorithm = each.algorithm});
  TuningTable table;
  table.replace(rows);
  return table;
}

std::optional<int> parse_settings(const Arguments& arguments, Settings& settings) {
  CLI::App app("Choose how to communicate: algorithm, bucket and codec for a workload on a network.", "ranvier plan");
  app.footer(examples);
  app.add_option("--workload", settings.workload, simulation::workload_help())->type_name("NAME|FILE");
  add_count(app, "--world", settings.world, "how many ranks; a measured --topology says so itself", 2, 1 << 20);
  settings.network.add_to(app);
  app.add_option("--output", settings.output, "write the plan there, for ranvier train --plan; - is stdout")
      ->type_name("FILE");
  app.add_option("--tuning", settings.tuning, "write the fastest algorithm by size there")->type_name("FILE");
  add_name(app, "--transport", settings.transport,
           "what the plan is for; default: that of a measured --topology, else tcp", {"tcp", "shm", "udp"});
  app.add_option("--json", settings.json, "write all choices there; - is stdout, in place of the text")
      ->type_name("FILE");
  if (const auto code = parse(app, arguments)) return code;
  settings.network.check();
  if (!settings.world) settings.world = settings.network.measured_ranks();
  if (!settings.world) throw Error(ErrorKind::usage, "plan needs --world, such as --world 8");
  if (settings.workload.empty()) throw Error(ErrorKind::usage, "plan needs --workload: what is to be sent");
  if (settings.transport.empty()) settings.transport = settings.network.measured_transport();
  if (settings.transport.empty()) settings.transport = "tcp";
  return std::nullopt;
}

}  // namespace

int run_plan(const Arguments& arguments) {
  Settings settings;
  if (const auto code = parse_settings(arguments, settings)) return *code;
  const auto world = static_cast<Rank>(*settings.world);
  const JsonFile file(settings.json);
  const ResultFile tuning(settings.tuning, "--tuning");
  const ResultFile output(settings.output, "--output");
  const Workload workload = simulation::load_workload(settings.workload);
  const Topology topology = settings.network.topology(world);
  PlanSearch search;
  for (const auto name : simulation::all_reduce_algorithms()) search.algorithms.emplace_back(name);
  search.bucket_bytes = bucket_sizes(gradient_bytes(workload));
  search.options = settings.network.transfers();
  search.by_size =
      fastest_algorithms(topology, search.algorithms, most_bytes_of_a_table(gradient_bytes(workload)), search.options);
  for (const auto spec : codec_specs) search.codecs.push_back(planning::measure_codec(spec));
  const auto ranked = rank_plans(workload, topology, search);

  const PlanChoice& best = ranked.front();
  const PlanChoice* second = planning::second_best(ranked);
  const std::string chosen =
      fmt::format("{}: a step of {:.4f} ms, {:.4f} of them waiting for the network", planning::describe(best),
                  best.step.step_ns / 1e6, best.step.exposed_communication_ns / 1e6);
  const std::string runner_up = second == nullptr ? "none: nothing else takes another time"
                                                  : fmt::format("{}: {:.1f} % longer", planning::describe(*second),
                                                                (second->step.step_ns / best.step.step_ns - 1) * 100);
  std::vector<std::string> verdicts;
  for (const auto codec : codec_specs)
    verdicts.push_back(planning::verdict(ranked, codec, settings.network.bytes_per_second()));
  if (settings.json != "-" && settings.output != "-") {
    fmt::print("# {} on {} of {} ranks\nchosen  {}\nsecond  {}\n", settings.workload, settings.network.spec(), world,
               chosen, runner_up);
    for (const auto& sentence : verdicts) fmt::print("codec   {}\n", sentence);
  }
  tuning.write(table_of(search.by_size, settings.transport, world).text());
  Plan plan = plan_of(best, search, workload, settings, world);
  plan.because = {"chosen: " + chosen, "second: " + runner_up};
  plan.because.insert(plan.because.end(), verdicts.begin(), verdicts.end());
  output.write(to_toml(plan));
  json choices = json::array();
  for (const auto& choice : ranked) choices.push_back(planning::to_json(choice));
  file.write({{"choices", choices}, {"verdicts", verdicts}, {"environment", environment()}});
  return 0;
}

}  // namespace ranvier::cli
