#include "simulate/options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>

#include "ranvier/error.h"
#include "ranvier/sync.h"
#include "ranvier/synchronizer.h"
#include "ranvier/text.h"
#include "simulate/plan.h"
#include "simulate/workload.h"

namespace ranvier::simulation {
namespace {

constexpr auto examples = R"(
The schedule that would run is compiled for every rank, and its messages share the links of the topology fairly. Ranks
that do the same are simulated once, so that large worlds take no longer than small ones.

Examples:
  ranvier simulate --workload resnet50 --world 16 --link-rate 10Gbit
  ranvier simulate --workload recorded/workload.toml --topology topology.toml --world 4 --compress bf16
  ranvier simulate --workload llama3-70b:tp=8,pp=4 --world 256 --link-rate 400Gbit
  ranvier simulate --workload llama3-8b --world 8..65536 --link-rate 100Gbit --algorithm ring
  ranvier simulate --workload resnet50 --world 16 --link-rate 1Gbit --sync diloco:30,fragments=3,delay=5
  ranvier simulate --workload resnet50 --world 4 --link-rate 1Gbit --sync local:16 --speeds 1,1,0.5,0.5 --jitter 0.05x4
  ranvier simulate --workload resnet50 --world 16 --sync node:16 --place node=4 --topology fat_tree:4,oversubscription=4
                   --link-rate 300GB,10Gbit
  ranvier simulate --workload resnet50 --world 8 --link-rate 10Gbit --sync ssp:3,servers=2 --speeds 1,1,0.5
                   --jitter 0.05x4 --seed 7
  ranvier simulate --bytes 100M --world 64 --topology torus:8x8 --algorithm torus:8x8 --trace ring.json
  ranvier simulate --bytes 100M --world 16 --topology torus:4x4 --cut 0-1
  ranvier simulate --workload resnet50 --world 64 --topology fat_tree:8,oversubscription=2 --in-network
  ranvier simulate --bytes 100M --world 16 --crash 3:0.5
  ranvier simulate --workload llama3-8b --world 1024 --mtbf-hours 50000 --checkpoint-s 30
  ranvier simulate --plan plan.toml --trace plan.json
)";

[[noreturn]] void refuse(const std::string& sentence) { throw Error(ErrorKind::usage, sentence); }

// "16", or "8..65536": doubled from the first to the last.
std::vector<Rank> worlds_of(const std::string& text) {
  const auto dots = text.find("..");
  const auto first = parse_number<Rank>(std::string_view(text).substr(0, dots));
  const auto last = dots == std::string::npos ? first : parse_number<Rank>(std::string_view(text).substr(dots + 2));
  if (!first || !last || *first < 1 || *last < *first || *last > 1 << 20)
    refuse(
        fmt::format("--world '{}' is neither a number of ranks from 1 to 1048576 nor a range such as 8..65536", text));
  std::vector<Rank> worlds;
  for (std::int64_t world = *first; world <= *last; world *= 2) worlds.push_back(static_cast<Rank>(world));
  return worlds;
}

// "3:2.5"
std::pair<Rank, double> straggler_of(const std::string& text) {
  const auto colon = text.find(':');
  const auto rank = parse_number<Rank>(std::string_view(text).substr(0, colon));
  const auto factor =
      colon == std::string::npos ? std::nullopt : parse_number<double>(std::string_view(text).substr(colon + 1));
  if (!rank || *rank < 0 || !factor || !(*factor >= 1 && *factor <= 1e6))
    refuse(fmt::format("--straggler '{}' is not a rank and how many times slower it is, up to 1000000; write 3:2.5",
                       text));
  return {*rank, *factor};
}

// "3:12.5"
Crash crash_of(const std::string& text) {
  const auto colon = text.find(':');
  const auto rank = parse_number<Rank>(std::string_view(text).substr(0, colon));
  const auto ms =
      colon == std::string::npos ? std::nullopt : parse_number<double>(std::string_view(text).substr(colon + 1));
  if (!rank || *rank < 0 || !ms || !(*ms >= 0 && *ms < 1e9))
    refuse(fmt::format("--crash '{}' is not a rank and after how many ms it is lost; write 3:12.5", text));
  return {.rank = *rank, .at_ns = *ms * 1e6};
}

// Flags that say how, where what they are of is not asked for.
void refuse_what_nothing_asks_for(const CLI::App& app, const Options& options) {
  const auto refuse_alone = [&](const char* flag, const char* of, bool is_there) {
    if (app.count(flag) > 0 && !is_there) refuse(fmt::format("{} is of {}; give that, too, or leave it out", flag, of));
  };
  for (const char* flag : {"--checkpoint-s", "--checkpoint-every", "--recovery-s"})
    refuse_alone(flag, "--mtbf-hours", app.count("--mtbf-hours") > 0);
  refuse_alone("--crash-of", "--crash", app.count("--crash") > 0);
  for (const char* flag : {"--bucket", "--mtbf-hours"}) refuse_alone(flag, "--workload", !options.workload.empty());
}

}  // namespace

std::unique_ptr<SyncPolicy> policy_of(const Options& options, Rank replicas) {
  return make_sync_policy(options.sync, {.steps_per_epoch = 0,
                                         .steps = options.policy.steps > 0 ? options.policy.steps : steps_of_a_policy,
                                         .world = static_cast<std::uint64_t>(replicas)});
}

std::optional<Options> parse_options(const cli::Arguments& arguments) {
  Options options;
  std::string world, straggler, crash, plan;
  std::string loss = "host";
  std::optional<double> checkpoint_s;
  std::optional<std::uint64_t> steps, seed;
  std::size_t bucket = 0;
  std::size_t slice = 0;
  std::uint64_t in_a_row = 1;
  std::optional<std::uint64_t> at_once;
  bool unfolded = false;
  bool by_switches = false;
  CLI::App app("Predict a training step, or one all_reduce, on a network that need not be there.", "ranvier simulate");
  app.footer(examples);
  app.add_option("--world", world, "how many ranks; a range is doubled through")->type_name("N|A..B");
  app.add_option("--workload", options.workload, workload_help())->type_name("NAME|FILE");
  cli::add_bytes(app, "--bytes", options.bytes, "instead of a workload: one all_reduce of so many");
  app.add_option(
         "--communicator", options.communicator_file,
         "which ranks the process groups of a Chakra trace have, as ASTRA-sim writes it, or which dimensions of "
         "a shape each pass of an ASTRA-sim text spans, as LIBRA does")
      ->type_name("FILE");
  app.add_option("--plan", plan, "do as a file of ranvier plan says where no flag says otherwise")->type_name("FILE");
  options.network.add_to(app);
  auto* algorithm =
      cli::add_algorithm(app, options.step.algorithm, "how every all_reduce is done", all_reduce_algorithms());
  app.add_flag("--in-network", by_switches, "instead of an algorithm: switches add up what ranks sum");
  app.add_option("--compress", options.compress, "codec of gradients, at the speed that it has on this machine")
      ->type_name("SPEC");
  app.add_option("--sync", options.sync, "who averages what when, such as local:16; the mean over --steps")
      ->type_name("SPEC");
  app.add_option("--place", options.place,
                 "of --sync: so many nodes of consecutive replicas, as node=2 or node=4,rack=2")
      ->type_name("LEVEL=N,…");
  cli::add_count(app, "--steps", steps,
                 "of --sync: how many to take the mean over, and how long training is; default 10000, of servers fewer",
                 1, 1'000'000);
  app.add_option("--spread", options.policy.spread,
                 "of --sync local:H,adapt=R: assumed of replicas at every average, as docs/synchronization.md has it")
      ->type_name("X");
  cli::add_unequal_workers(app, options.policy.unequal,
                           "of --sync (default then: bsp), how fast each replica computes, 1 where the list ends");
  cli::add_count(app, "--seed", seed, "of --jitter: which steps are late, as in training with that seed; default 0", 0,
                 UINT64_MAX);
  cli::add_bytes(app, "--bucket", bucket, "gradients go together once so many bytes are ready; default 25 MB");
  cli::add_bytes(app, "--slice", slice, "the largest transfer; default 128K, and 512K where tcp was measured");
  cli::add_count(app, "--in-a-row", in_a_row,
                 "of --bytes: so many one behind the other, as bench does; the time of one", 1, 100);
  cli::add_count(
      app, "--at-once", at_once,
      "how many buckets are under way, default 4 as in a communicator; of --bytes: so many operations at the "
      "same time, default 1; the time of one",
      1, 64);
  app.add_option("--straggler", straggler, "a rank, and how many times slower it and its links are")
      ->type_name("RANK:FACTOR");
  app.add_option("--crash", crash, "a rank that is lost so many ms after the beginning: who waits, who notices it when")
      ->type_name("RANK:MS");
  cli::add_name(app, "--crash-of", loss, "what is lost; default: the host, which others notice by its silence",
                {"host", "process"});
  app.add_option("--cut", options.cuts,
                 "a cable that is lost, by its ends, ranks or switches: 0-1, 3-s0; may be repeated")
      ->type_name("A-B")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  auto& failures = options.failures;
  app.add_option("--mtbf-hours", failures.mtbf_hours, "mean time between failures of one rank; default: none fails")
      ->type_name("H");
  app.add_option("--checkpoint-s", checkpoint_s, "to write a checkpoint, while training waits")->type_name("S");
  cli::add_count(app, "--checkpoint-every", failures.checkpoint_steps,
                 "steps from one checkpoint to the next; default: as many as is best", 1);
  app.add_option("--recovery-s", failures.recovery_s,
                 "from the end of all ranks until training goes on from the last checkpoint; default 30")
      ->type_name("S");
  app.add_flag("--no-fold", unfolded, "simulate each rank, even where all do the same");
  app.add_option("--trace", options.trace_file, "write a timeline for ui.perfetto.dev there")->type_name("FILE");
  app.add_option("--json", options.json_file, "write the prediction there; - is stdout, in place of the table")
      ->type_name("FILE");
  if (cli::parse(app, arguments)) return std::nullopt;
  if (!plan.empty()) apply_plan(app, read_plan(plan), options);

  options.network.check();
  if (const auto ranks = options.network.measured_ranks(); ranks && world.empty()) world = std::to_string(*ranks);
  if (world.empty()) refuse("simulate needs --world, such as --world 16 or --world 8..65536");
  options.worlds = worlds_of(world);
  if (options.workload.empty() == (options.bytes == 0))
    refuse("simulate needs either --workload or --bytes: what is to be sent");
  options.by_graph = names_a_trace(options.workload) && (plan.empty() || options.by_graph);
  if (!options.communicator_file.empty() && !options.by_graph && !names_an_astra_text(options.workload))
    refuse("--communicator is of Chakra traces and of ASTRA-sim's text; leave it out");
  if (options.by_graph)
    for (const char* flag : {"--compress", "--sync", "--bucket", "--at-once", "--speeds", "--jitter", "--straggle"})
      if (app.count(flag) > 0)
        refuse(
            fmt::format("{} is of gradients that replicas average, which a trace does not tell from all else that it "
                        "sends; leave it out, or record the step with ranvier train --record",
                        flag));
  if (!options.communicator_file.empty() && !options.by_graph)
    for (const char* flag : {"--sync", "--speeds", "--jitter", "--straggle"})
      if (app.count(flag) > 0)
        refuse(
            fmt::format("{} is of replicas, and groups by pass, as --communicator has them, do not say which ranks "
                        "those are; leave out one of them",
                        flag));
  if (!options.compress.empty() && options.workload.empty()) refuse("--compress is of gradients; give --workload");
  options.policy.steps = steps.value_or(0);
  options.policy.seed = seed.value_or(0);
  if (seed && options.policy.unequal.jitter_share == 0 && options.sync != "ad-psgd")
    refuse("--seed draws which steps are late, and peers; give --jitter");
  if (const auto& spread = options.policy.spread; spread && !(*spread >= 0 && std::isfinite(*spread)))
    refuse(fmt::format("--spread {} is not a number that is at least 0", *spread));
  if (options.policy.unequal.any()) {
    if (options.workload.empty()) refuse("--speeds, --jitter and --straggle are of computing; give --workload");
    if (options.sync.empty()) options.sync = "bsp";
  }
  if (!options.sync.empty()) {
    if (options.workload.empty()) refuse("--sync is of training; give --workload");
    const auto policy = policy_of(options, 0);
    PolicySimulation how = options.policy;
    if (!options.place.empty()) how.levels.resize(policy->levels().size() + 1);
    check_predictable(*policy, how);
    if (!options.compress.empty()) check_compress(*policy, options.compress);
    if (policy->levels().size() == 1 && !options.place.empty())
      refuse(
          fmt::format("--place is of policies with nodes, such as node:16; leave it out with --sync {}", options.sync));
    if (!policy->wants_spread() && how.spread)
      refuse("--spread is of policies that go by it, such as local:8,adapt=0.5,most=64");
  } else if (!options.place.empty() || options.policy.spread || steps) {
    refuse("--place, --spread and --steps are of --sync; name a policy");
  }
  if (by_switches) {
    if (algorithm->count() > 0) refuse("--in-network is in place of --algorithm; give one of them");
    if (!options.compress.empty()) refuse("--in-network adds up numbers, not codes; leave out --compress");
    if (!crash.empty()) refuse("--crash shows who waits for whom, which --in-network does not know; leave out one");
    if (options.network.is_measured() || options.network.topology(options.worlds.front()).switches == 0)
      refuse(fmt::format(
          "--in-network needs switches, which --topology {} does not show; take star, fat_tree:4 or a shape with them, "
          "such as RI(4)_SW(8)",
          options.network.spec()));
    options.step.algorithm = in_network;
  }
  options.any_algorithm = algorithm->count() == 0 && !by_switches && options.step.by_size.empty();
  if (bucket > 0) options.step.bucket_bytes = static_cast<double>(bucket);
  if (!straggler.empty()) options.straggler = straggler_of(straggler);
  if (app.count("--mtbf-hours") > 0 && failures.mtbf_hours == 0)
    refuse("--mtbf-hours 0 is no time between failures; write hours, or leave it out where none fails");
  if (failures.mtbf_hours > 0 && !checkpoint_s)
    refuse(
        "--mtbf-hours needs --checkpoint-s, how long writing one takes: after a failure training begins again from it");
  failures.checkpoint_s = checkpoint_s.value_or(0);
  refuse_what_nothing_asks_for(app, options);
  for (const auto& [flag, amount] :
       {std::pair("--mtbf-hours", failures.mtbf_hours), std::pair("--recovery-s", failures.recovery_s),
        std::pair("--checkpoint-s", failures.checkpoint_s)})
    if (!(amount >= 0 && amount < 1e9)) refuse(fmt::format("{} {:g} is not a number from 0 to 1e9", flag, amount));
  if (!crash.empty()) options.crash = crash_of(crash);
  options.loss = loss == "host" ? Loss::host : Loss::process;
  options.step.options = options.network.transfers();
  if (slice > 0) options.step.options.slice_bytes = slice;
  options.step.options.fold = !unfolded;
  if (in_a_row > 1 && options.bytes == 0) refuse("--in-a-row is of --bytes; a step has an order of its own");
  options.step.options.in_a_row = in_a_row;
  if (options.bytes > 0) options.step.options.at_once = at_once.value_or(1);
  if (options.bytes == 0 && at_once) options.step.at_once = *at_once;
  if (options.worlds.size() > 1)
    for (const auto& [flag, is_given] :
         {std::pair("--trace", !options.trace_file.empty()), std::pair("--crash", options.crash.has_value()),
          std::pair("--cut", !options.cuts.empty())})
      if (is_given) refuse(fmt::format("{} is of one world; name one, such as --world 16", flag));
  if (options.crash && options.crash->rank >= options.worlds.front())
    refuse(fmt::format("--crash names rank {} of {} ranks", options.crash->rank, options.worlds.front()));
  if (options.crash && options.worlds.front() == 1) refuse("--crash leaves nobody of one rank; name a larger --world");
  if (options.crash && options.bytes > 0 && in_a_row * at_once.value_or(1) > 1)
    refuse("--crash is in one operation; leave out --in-a-row and --at-once");
  auto read = options.network.files();
  read.push_back({"--workload", options.workload});
  read.push_back({"--communicator", options.communicator_file});
  read.push_back({"--plan", plan});
  cli::refuse_overwriting({{"--trace", options.trace_file}, {"--json", options.json_file}}, read);
  return options;
}

}  // namespace ranvier::simulation
