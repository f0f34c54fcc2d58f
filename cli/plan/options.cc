#include "plan/options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "plan/planner.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"
#include "ranvier/sync.h"
#include "simulate/levels.h"
#include "simulate/workload.h"

namespace ranvier::planning {
namespace {

constexpr auto examples = R"(
The step is simulated with every placement of the ranks, transport, algorithm, bucket size, codec and policy that a bound
does not show to be slower, and with every division of a ready-made model over its ranks that leaves the global batch as
it is; codecs at the speed that they have on this machine. --output writes the choice as a file that ranvier train --plan
obeys. --tuning writes which algorithm is the fastest at which size, as bench --tune does by measuring: RANVIER_TUNING or
--tuning of other commands then follow it.

Examples:
  ranvier plan --workload resnet50 --world 8 --link-rate 10Gbit
  ranvier plan --workload recorded/workload.toml --topology topology.toml --output plan.toml
  ranvier plan --workload recorded/workload.toml --topology tcp.toml --topology udp.toml --sync bsp
  ranvier plan --workload llama3-8b --world 64 --topology torus:8x8 --link-rate 100Gbit --tuning tuning.txt
  ranvier plan --workload step.0.et --communicator groups.json --world 64 --topology torus:8x8
  ranvier plan --again plan.toml --took-ms 310 --waited-ms 260 --output next.toml
)";

constexpr Rank most_placed = 1024;

// Which say something of a plan that is followed.
constexpr std::array of_again{"--took-ms", "--waited-ms", "--gradient-bytes", "--bucket", "--keep-compress"};

// Of --again, for CLI11 to fill.
struct AgainFlags {
  std::string file;
  double took_ms = 0;
  double waited_ms = 0;
  double gradient_bytes = 0;
  std::uint64_t bucket = 0;
  bool keeps_codec = false;
};

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorKind::usage, sentence); }

PlanPolicy checked_policy(const std::string& spec, const Options& options) {
  const Rank world = options.world;
  const auto machine = make_sync_policy(
      spec, {.steps_per_epoch = 0, .steps = steps_of_a_policy, .world = static_cast<std::uint64_t>(world)});
  if (machine->wants_spread())
    refuse(
        fmt::format("--sync {} goes by how far replicas part, which is not known before they train; give a period "
                    "without adapt",
                    spec));
  if (machine->meets_peers())
    refuse(
        fmt::format("--sync {}: where the network is slow, ranks that are asked take their steps without the others, "
                    "which no time shows; ranvier simulate --sync {} says how much",
                    spec, spec));
  if (machine->levels().size() > 1 && options.place.empty())
    refuse(
        fmt::format("--sync {} averages inside nodes, and nothing says who shares one; add --place node=2 for two of "
                    "consecutive replicas",
                    spec));
  if (machine->server() && machine->server()->servers > 0)
    refuse(
        fmt::format("--sync {}: plan compares steps of as many samples, and who only serves takes none; leave out "
                    "servers={}",
                    spec, machine->server()->servers));
  if (machine->levels().size() > 1 && world > most_placed)
    refuse(
        fmt::format("--sync {} is simulated for {} ranks at most, since first ranks of nodes do what others do not; "
                    "take a smaller --world",
                    spec, most_placed));
  const std::string own = simulation::place_for(*machine, options.place);
  const auto levels = simulation::levels_of(*machine, own.empty() ? options.place : own, world);
  if (levels.size() > 2 && levels[1] == levels[0])
    refuse(
        fmt::format("--place {} puts one rank in each node, which has nobody to average with inside; take local:H in "
                    "place of {}",
                    options.place, spec));
  check_predictable(*machine, {.levels = levels});
  return plan_policy(spec);
}

void add_again(CLI::App& app, AgainFlags& flags) {
  app.add_option(
         "--again", flags.file,
         "a plan that training follows, whose steps take what the next flags say: choose algorithms, bucket and "
         "codec anew, for a network that is as much slower or faster as explains it")
      ->type_name("FILE");
  app.add_option("--took-ms", flags.took_ms, "what a step took by that plan")->type_name("MS");
  app.add_option("--waited-ms", flags.waited_ms, "of it, what was waited for averages behind the backward pass")
      ->type_name("MS");
  app.add_option("--gradient-bytes", flags.gradient_bytes, "of the model that is trained, to be checked")
      ->type_name("BYTES");
  cli::add_count(app, "--bucket", flags.bucket, "gradients go in buckets of so many bytes, which stays so", 1,
                 std::uint64_t{1} << 40);
  app.add_flag("--keep-compress", flags.keeps_codec, "the codec stays, since what it holds must not be lost");
}

Again checked_again(const CLI::App& app, const AgainFlags& flags) {
  constexpr double most_ms = 1e9;
  for (const auto* option : app.get_options()) {
    const bool goes_with_it = option->check_name("--again") || option->check_name("--output") ||
                              option->check_name("--limit") ||
                              std::ranges::any_of(of_again, [&](const char* flag) { return option->check_name(flag); });
    if (option->count() > 0 && !goes_with_it)
      refuse(
          fmt::format("--again goes by its plan's file, and writes --output alone; leave {} out", option->get_name()));
  }
  if (app.count("--took-ms") == 0)
    refuse("--again needs --took-ms: how many milliseconds a step has taken by that plan");
  if (!(flags.took_ms > 0 && flags.took_ms < most_ms))
    refuse(fmt::format("--took-ms {} is no time that a step takes; give milliseconds above 0 and below {}",
                       flags.took_ms, most_ms));
  if (app.count("--waited-ms") == 0)
    refuse("--again needs --waited-ms: how many of the milliseconds of --took-ms a step has waited for averages");
  if (!(flags.waited_ms >= 0 && flags.waited_ms <= flags.took_ms))
    refuse(fmt::format("--waited-ms {} is no part of --took-ms {}; give milliseconds from 0 to that", flags.waited_ms,
                       flags.took_ms));
  if (!(flags.gradient_bytes >= 0 && std::isfinite(flags.gradient_bytes)))
    refuse(fmt::format("--gradient-bytes {} is no number of bytes; give 0 or more", flags.gradient_bytes));
  return {.file = flags.file,
          .measured = {.step = {flags.took_ms / 1e3, flags.waited_ms / 1e3},
                       .gradient_bytes = flags.gradient_bytes,
                       .bucket_bytes = static_cast<std::size_t>(flags.bucket),
                       .keeps_codec = flags.keeps_codec}};
}

// Each level that is placed has to be one of some policy.
void check_place(const Options& options) {
  std::vector<std::unique_ptr<SyncPolicy>> policies;
  for (const PlanPolicy& each : options.policies) policies.push_back(make_sync_policy(each.spec, {}));
  if (std::ranges::none_of(policies, [](const auto& each) { return each->levels().size() > 1; }))
    refuse("--place is of policies with nodes, such as node:16; leave it out, or add --sync node:16");
  if (std::ranges::none_of(
          policies, [&](const auto& each) { return simulation::place_for(*each, options.place) == options.place; }))
    for (const auto& each : policies) (void)simulation::levels_of(*each, options.place, options.world);
}

}  // namespace

std::optional<Options> parse_options(const cli::Arguments& arguments) {
  Options options;
  std::optional<std::uint64_t> world;
  std::vector<std::string> policies;
  double memory_gb = 80;
  options.codecs.assign(default_codecs.begin(), default_codecs.end());
  CLI::App app(
      "Choose how to communicate: placement, transport, algorithm, bucket, codec and policy for a workload on a "
      "network.",
      "ranvier plan");
  app.footer(examples);
  app.add_option("--workload", options.workload, simulation::workload_help())->type_name("NAME|FILE");
  app.add_option("--communicator", options.communicator_file,
                 "which ranks the process groups of a Chakra trace have, where it does not say so itself, or which "
                 "dimensions of a shape each pass of an ASTRA-sim text spans, as LIBRA has it")
      ->type_name("FILE");
  cli::add_count(app, "--world", world, "how many ranks; a measured --topology says so itself", 2, 1 << 20);
  options.network.add_to(app, true);
  app.add_option("--sync", policies,
                 "a policy to be weighed, such as bsp; may be repeated; default: bsp, local:16 where it is "
                 "faster by 10 %, with --place node:16, and of unequal replicas group and async")
      ->type_name("SPEC")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--place", options.place,
                 "so many nodes of consecutive replicas, as node=2 or node=4,rack=2, for policies with nodes")
      ->type_name("LEVEL=N,…");
  cli::add_unequal_workers(app, options.unequal, "how fast each replica computes, 1 where the list ends");
  app.add_option("--compress", options.codecs,
                 "a codec to be weighed beside none; may be repeated; default: bf16, int8 and hadamard:32+int4")
      ->type_name("SPEC")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--memory", memory_gb, "GB of each rank for a model's weights, gradients and optimizer; default 80")
      ->type_name("GB");
  app.add_option("--output", options.output, "write the plan there, for ranvier train --plan; - is stdout")
      ->type_name("FILE");
  app.add_option("--tuning", options.tuning, "write the fastest algorithm by size there")->type_name("FILE");
  cli::add_name(app, "--transport", options.transport,
                "what the plan is for; default: those of measured --topology, else tcp", {"tcp", "shm", "udp"});
  app.add_option("--json", options.json, "write all choices there; - is stdout, in place of the text")
      ->type_name("FILE");
  AgainFlags again;
  add_again(app, again);
  std::chrono::milliseconds limit = std::chrono::seconds(2);
  cli::add_seconds(app, "--limit", limit,
                   "how long it may search, for the best that it knows by then; default none, of --again 2");
  if (cli::parse(app, arguments)) return std::nullopt;
  if (app.count("--limit") > 0 || !again.file.empty()) options.limit.time = limit;
  if (!again.file.empty()) {
    options.again = checked_again(app, again);
    cli::refuse_overwriting({{"--output", options.output}}, {{"--again", again.file}});
    return options;
  }
  for (const char* flag : of_again)
    if (app.count(flag) > 0) refuse(fmt::format("{} is of a plan that is followed; add --again plan.toml", flag));
  options.network.check();
  if (options.network.speeds().size() > 1)
    refuse("--link-rate and --latency-us of plan are of all links; let ranvier probe measure links that differ");
  if (options.network.count() > 1 && !options.transport.empty())
    refuse(
        "--transport is of one network, and several --topology say themselves which theirs is; leave out --transport");
  if (!world) world = options.network.measured_ranks();
  if (!world) refuse("plan needs --world, such as --world 8");
  options.world = static_cast<Rank>(*world);
  if (options.workload.empty()) refuse("plan needs --workload: what is to be sent");
  if (!(memory_gb > 0 && memory_gb < 1e9)) refuse(fmt::format("--memory {} is not a number of GB above 0", memory_gb));
  options.memory_bytes = memory_gb * 1e9;
  const bool by_pass = !options.communicator_file.empty() && simulation::names_an_astra_text(options.workload);
  if (policies.empty() && by_pass) policies.emplace_back("bsp");
  if (policies.empty())
    for (const auto& each : plan_policies(!options.place.empty(), options.unequal.any())) policies.push_back(each.spec);
  for (const auto& spec : policies) options.policies.push_back(checked_policy(spec, options));
  if (!options.place.empty()) check_place(options);
  std::erase(options.codecs, "none");
  if (!options.communicator_file.empty() && !names_a_trace(options.workload)) {
    if (!simulation::names_an_astra_text(options.workload))
      refuse("--communicator is of Chakra traces and of ASTRA-sim's text; leave it out");
    if (std::ranges::any_of(options.policies, [](const auto& each) { return each.spec != "bsp"; }) ||
        options.unequal.any())
      refuse(
          "--sync, --speeds, --jitter and --straggle are of replicas, and groups by pass, as --communicator has "
          "them, do not say which ranks those are; leave out one of them");
  }
  for (const char* flag : {"--compress", "--sync", "--place", "--speeds", "--jitter", "--straggle"})
    if (app.count(flag) > 0) options.gradients_flag = flag;
  auto read = options.network.files();
  read.push_back({"--workload", options.workload});
  read.push_back({"--communicator", options.communicator_file});
  cli::refuse_overwriting({{"--output", options.output}, {"--tuning", options.tuning}, {"--json", options.json}}, read);
  return options;
}

}  // namespace ranvier::planning
