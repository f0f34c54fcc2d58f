#include "bench/options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/spec.h"
#include "bench/baselines.h"
#include "ranvier/error.h"
#include "ranvier/schedule.h"
#include "ranvier/text.h"
#include "ranvier/topology.h"
#include "ranvier/transport.h"

namespace ranvier::bench {
namespace {

constexpr auto examples = R"(
Sizes are of the longest buffer of a rank (4, 64K, 16M); step and iterations have the meaning that nccl-tests gives them.
A sample is a run of operations between two barriers; its time is that of the slowest rank. Columns are in microseconds
and in 10^9 bytes per second; "ratio" is the baseline's time divided by ranvier's, the median over pairs of neighbouring
samples. algbw and busbw: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
Of ranks that a launcher started, rank 0's flags count for what is measured: collective, sizes, type, reduction, samples.

Examples:
  ranvier bench --ranks 2
  ranvier bench --ranks 4 --transport tcp --collective all_gather -b 1K -e 1M -f 2
  ranvier bench --ranks 2 --transport shm --baseline mpi,gloo --json shm.json
  mpirun -n 2 ranvier bench -e 1M
  ranvier bench --ranks 2 --compare-transports -e 16M           (or started on hosts by mpirun, torchrun, srun)
  ranvier bench --ranks 4 --transport tcp --probe
  ranvier bench --ranks 4 --transport tcp --tune tuning.txt     (then: --tuning tuning.txt, or RANVIER_TUNING)
  ranvier bench --explain --ranks 8 --algorithm ring --topology mesh:2x4
  ranvier bench --explain --ranks 16 --topology star --topology torus:4x4 --topology fat_tree:4
)";

constexpr std::uint64_t most_ranks = 1024;

// One of `values`, in any spelling that `parse` knows.
template <class Value, std::size_t count>
void add_value(CLI::App& app, const std::string& flag, Value& value, const std::string& help,
               std::optional<Value> (*parse)(std::string_view), const std::array<Value, count>& values) {
  const auto take = [&value, flag, parse, values](const std::string& word) {
    const auto parsed = parse(word);
    std::vector<std::string_view> names;
    for (const auto each : values) names.push_back(name_of(each));
    if (!parsed) throw Error(ErrorKind::usage, unknown_name(flag.substr(flag.find("--") + 2), word, names));
    value = *parsed;
  };
  app.add_option_function<std::string>(flag, take, help)->default_str(std::string(name_of(value)))->type_name("NAME");
}

std::vector<std::string_view> algorithm_names() {
  std::vector<std::string_view> names{"auto", "vendor"};
  for (const auto& algorithm : algorithms()) names.push_back(algorithm.name);
  return names;
}

// --tune completes the table that auto goes by, if they are one: that is meant.
void refuse_overwriting(const Options& options) {
  const auto read = cli::files_of(options.security);
  cli::refuse_overwriting({{"--tune", options.tune_file}, {"--json", options.json_file}}, read);
  cli::refuse_overwriting({{"--json", options.json_file}}, {{"--tuning", options.tuning}});
}

Collective collective_named(std::string_view name) {
  return parse_collective(name).value_or(Collective::send);  // "sendrecv" is the one that is no Collective
}

void take_baselines(const std::string& list, Options& options) {
  std::vector<std::string_view> known = baseline_names();
  known.emplace_back("all");
  for (std::string_view left = list; !left.empty();) {
    const auto end = std::min(left.find(','), left.size());
    const std::string name(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(ErrorKind::usage, unknown_name("baseline", name, known));
    if (name == "all") {
      options.every_baseline = true;
      for (const auto each : baseline_names()) options.baselines.emplace_back(each);
    } else {
      options.baselines.push_back(name);
    }
  }
  std::vector<std::string> once;
  for (const auto& name : options.baselines)
    if (std::find(once.begin(), once.end(), name) == once.end()) once.push_back(name);
  options.baselines = once;
}

// Without ranks there are no transports, sizes and baselines; a schedule has a collective, and a topology a schedule.
void refuse_contradictions_of_explain(const Options& options) {
  const auto refuse = [](const std::string& sentence) { throw Error(ErrorKind::usage, sentence); };
  if (!options.explain && options.topologies.size() > 1)
    refuse("data keeps to one network; name one --topology, or add --explain to compare several");
  if (!options.explain) return;
  if (options.learn)
    refuse("--explain runs nothing that --learn could learn from; leave out --learn (RANVIER_LEARN=0)");
  if (!options.ranks) refuse("--explain needs --ranks N: the world of which the schedule is");
  if (!options.baselines.empty()) refuse("--explain runs nothing beside which to measure; leave out --baseline");
  if (options.collective == Collective::barrier || options.collective == Collective::send)
    refuse(fmt::format("{} has no schedule to explain; choose another collective", job_name(options.collective)));
}

void refuse_contradictions_of_probe(const Options& options) {
  const auto refuse = [](const std::string& sentence) { throw Error(ErrorKind::usage, sentence); };
  if (!options.probe) return;
  if (options.learn) refuse("--probe runs nothing that --learn could learn from; leave out --learn (RANVIER_LEARN=0)");
  if (options.explain) refuse("--explain starts no ranks whose links --probe could show; leave out one of them");
  if (!options.baselines.empty()) refuse("--probe times nothing, and no baseline beside it; leave out --baseline");
  if (!options.tune_file.empty()) refuse("--probe times nothing that --tune could write; leave out one of them");
  if (!options.json_file.empty()) refuse("--probe prints a table and no JSON; leave out --json");
}

void refuse_contradictions_of_tune(const Options& options) {
  const auto refuse = [](const std::string& sentence) { throw Error(ErrorKind::usage, sentence); };
  if (options.tune_file.empty()) return;
  if (options.explain) refuse("--explain runs nothing that --tune could time; leave out one of them");
  if (!options.baselines.empty()) refuse("--tune compares ranvier with itself; leave out --baseline");
  if (options.algorithm != "auto") refuse("--tune times every algorithm; leave out --algorithm");
  if (options.learn)
    refuse(
        "--tune times what auto chooses, which --learn (RANVIER_LEARN) would change meanwhile; leave out one of them");
  if (options.collective == Collective::neighbor_exchange)
    refuse(
        "neighbor_exchange has one algorithm, and its grid is no choice but what it means; name another collective "
        "to tune");
  if (options.collective == Collective::barrier || options.collective == Collective::send)
    refuse(fmt::format("{} has one algorithm; name another collective to tune", job_name(options.collective)));
}

// Null where none is named.
const Algorithm* named_algorithm(const Options& options) {
  if (options.algorithm == "auto" || options.algorithm == "vendor" || options.collective == Collective::barrier)
    return nullptr;
  return &find_algorithm(parse_algorithm(options.algorithm).algorithm().name, options.collective);
}

void refuse_unfit_root(const Options& options, Rank world) {
  if (options.root < world) return;
  throw Error(ErrorKind::usage, fmt::format("--root {} is not in a world of {}; name one of ranks 0 to {}",
                                            options.root, in_words(world), world - 1));
}

// Whether it suits the world shows later.
void refuse_unknown_topology(const std::string& spec) {
  const auto stages = parse_spec(spec);
  if (std::ranges::find(topology_names(), stages.front().name) == topology_names().end())
    throw Error(ErrorKind::usage, unknown_name("topology", stages.front().name, topology_names()));
}

// Building an algorithm or a topology says whether its dims suit the world.
void refuse_unfit_world(const Options& options, Rank world) {
  refuse_unfit_root(options, world);
  if (const Algorithm* const algorithm = named_algorithm(options)) {
    const AlgorithmSpec spec = parse_algorithm(options.algorithm);
    algorithm->build({.collective = options.collective, .world = world, .dims = spec.dims, .periodic = spec.periodic});
  }
  for (const std::string& topology : options.topologies) make_topology(topology, world);
  if (options.nodes && *options.nodes > static_cast<std::uint64_t>(world))
    throw Error(ErrorKind::usage, fmt::format("--nodes {} is too many for {}; give at most one node to each rank",
                                              *options.nodes, in_words(world)));
}

void refuse_contradictions(const Options& options) {
  const auto refuse = [](const std::string& sentence) { throw Error(ErrorKind::usage, sentence); };
  if (options.min_bytes > options.max_bytes)
    refuse(fmt::format("--minbytes {} is more than --maxbytes {}; swap them", options.min_bytes, options.max_bytes));
  if (reduces(options.collective) &&
      (!is_defined(options.op, options.dtype) || (options.op == ReduceOp::average && options.dtype == DType::boolean)))
    refuse(fmt::format("--op {} has no meaning on --dtype {}; choose sum or max", name_of(options.op),
                       name_of(options.dtype)));
  named_algorithm(options);
  if (options.root != 0 && !has_root(options.collective))
    refuse(fmt::format("{} has no root; leave out --root, or name broadcast, reduce, gather or scatter",
                       job_name(options.collective)));
  if (options.ranks) refuse_unfit_world(options, *options.ranks);
  refuse_contradictions_of_explain(options);
  refuse_contradictions_of_probe(options);
  refuse_contradictions_of_tune(options);
  if (options.learn && options.algorithm != "auto")
    refuse("--learn corrects auto; leave out --algorithm, or --learn (RANVIER_LEARN=0)");
  if (options.compare && (!options.baselines.empty() || options.probe || options.explain || !options.tune_file.empty()))
    refuse("--compare-transports measures transports only; leave out --baseline, --probe, --explain and --tune");
  if (options.compare && options.collective == Collective::barrier)
    refuse("--compare-transports is about throughput too, and a barrier carries nothing; name another --collective");
  if (options.compare && options.ranks == 1)
    refuse("one rank sends nothing that --compare-transports could measure; start --ranks 2 or more");
  if (options.collective == Collective::neighbor_exchange && !options.baselines.empty())
    refuse(
        "neighbor_exchange has a grid that no baseline is told; leave out --baseline, or time sendrecv, which is one "
        "direction of it");
  if (!options.baselines.empty() && !options.ranks)
    refuse("--baseline needs --ranks N: a baseline's ranks are started beside ranvier's on this machine");
  if (!options.baselines.empty() && options.link_bytes_per_second > 0)
    refuse("--link-rate paces ranvier only, which makes no fair comparison; leave out --baseline or --link-rate");
  if (options.in_place && (options.collective == Collective::send || options.collective == Collective::all_to_all ||
                           options.collective == Collective::neighbor_exchange))
    refuse(fmt::format("{} needs two buffers; leave out --in-place", job_name(options.collective)));
  if (options.collective == Collective::send && options.ranks && *options.ranks < 2)
    refuse("sendrecv needs another rank; use --ranks 2 or more");
}

}  // namespace

std::string in_words(Rank ranks) { return ranks == 1 ? "1 rank" : fmt::format("{} ranks", ranks); }

std::optional<Options> parse_options(const cli::Arguments& arguments) {
  Options options;
  options.arguments = arguments;
  CLI::App app("Time collectives, and check every result against the exact answer.", "ranvier bench");
  app.footer(examples);

  cli::add_bytes(app, "-b,--minbytes", options.min_bytes, "the smallest size")->default_str("4");
  cli::add_bytes(app, "-e,--maxbytes", options.max_bytes, "the largest size")->default_str("64M");
  std::string factor = "4";
  app.add_option("-f,--stepfactor", factor, "from one size to the next")->capture_default_str()->type_name("X");
  cli::add_count(app, "-n,--iters", options.sampling.iterations,
                 "operations in a sample (default: some milliseconds' worth)", 1);
  cli::add_count(app, "-w,--warmup", options.sampling.warmups, "operations before each sample (default: a tenth)", 0);
  cli::add_count(app, "-c,--check", options.sampling.checks,
                 "operations checked before the samples, which also are (sums in place: of zeros)", 0, 1000);
  cli::add_count(app, "--samples", options.sampling.samples, "samples of each size; the median is shown", 1, 100'000);

  std::string collective = "all_reduce";
  cli::add_name(app, "--collective", collective, "what to time", {job_names().begin(), job_names().end()});
  add_value(app, "-d,--dtype", options.dtype, "element type", parse_dtype, all_dtypes);
  add_value(app, "-o,--op", options.op, "reduction", parse_reduce_op, all_reduce_ops);
  std::uint64_t root = 0;
  cli::add_count(app, "-r,--root", root, "of broadcast, reduce, gather and scatter", 0, most_ranks - 1)
      ->capture_default_str();
  bool in_place = false, out_of_place = false;
  auto* in = app.add_flag("--in-place", in_place, "input and output share memory (default for all_reduce, reduce)");
  app.add_flag("--out-of-place", out_of_place, "they do not (default for the others)")->excludes(in);

  std::string buffers = "malloc";
  cli::add_name(app, "--buffers", buffers, "memory of ranvier's vectors, any or what Communicator::allocate gives",
                {"malloc", "ranvier"});
  cli::add_transport(app, options.transport, "how bytes travel")->envname("RANVIER_TRANSPORT");
  cli::add_algorithm(app, options.algorithm, "schedule, vendor that of the transport's library (mpi)",
                     algorithm_names())
      ->envname("RANVIER_ALGORITHM");
  app.add_option("--tuning", options.tuning, "what auto chooses, as --tune wrote it")
      ->envname("RANVIER_TUNING")
      ->type_name("FILE");
  app.add_option(
         "--tune", options.tune_file,
         "time every algorithm, and write there which is the fastest at which size; rows for other collectives, "
         "transports and worlds stay")
      ->type_name("FILE");
  cli::add_listening(app, options.interface_address, options.sockets, options.ports, options.security);
  const auto take_rate = [&options](const std::string& word) {
    options.link_bytes_per_second = cli::link_rate_of(word);
  };
  app.add_option_function<std::string>("--link-rate", take_rate,
                                       "hold each rank's sending to this rate, such as 200Mbit")
      ->envname("RANVIER_LINK_RATE")
      ->type_name("RATE");

  std::optional<std::uint64_t> ranks;
  cli::add_count(app, "--ranks", ranks, "start so many processes here (default: be one of a world that was started)", 1,
                 most_ranks);
  cli::add_count(app, "--nodes", options.nodes,
                 "let ranks share memory as if they were on so many hosts, to try transport auto or shm+mpi", 1, 1024);
  cli::add_switch(
      app, "--pin,!--no-pin", options.pin,
      "rank i stays on core i (default: if there are cores enough; of gloo and torch, which have threads, never)");
  std::string baselines;
  auto* baseline_flag = app.add_option("--baseline", baselines,
                                       "measure these too: mpi, gloo, torch (ranvier through "
                                       "torch.distributed), or all that are here")
                            ->type_name("LIST");
  app.add_option("--python", options.python, "the Python that has torch, for gloo and torch")->type_name("PATH");
  cli::add_seconds(app, "--timeout", options.timeout, "for one sample");
  cli::add_seconds(app, "--join-timeout", options.join_timeout, "for all ranks to come");
  auto dead_after_ms = static_cast<std::uint64_t>(options.dead_after.count());
  cli::add_count(app, "--dead-after-ms", dead_after_ms, "give up a rank of which nothing is heard for so long", 100,
                 86'400'000)
      ->capture_default_str()
      ->envname("RANVIER_DEAD_AFTER_MS");
  app.add_flag("--measure,!--no-measure", options.measure,
               "measure links and algorithms at start, for auto to choose by; else it goes by ordinary links")
      ->envname("RANVIER_MEASURE");
  app.add_flag("--learn", options.learn,
               "let auto correct itself by what it meets, and write that into the file of --tuning at the end")
      ->envname("RANVIER_LEARN");
  app.add_flag("--probe", options.probe,
               "time nothing: print what the links can do, and the table that auto follows on them");
  app.add_flag("--compare-transports", options.compare,
               "throughput, latency, CPU time and errors of every transport of this build, in one table");
  cli::add_count(app, "--latency-samples", options.latency_samples, "operations of --minbytes that it times of each", 1,
                 1'000'000)
      ->capture_default_str();
  app.add_flag("--explain", options.explain,
               "time nothing: draw the --algorithm, or compare all there are, with proof, cost and contention");
  const auto take_topologies = [&options](const std::vector<std::string>& specs) {
    std::ranges::for_each(specs, refuse_unknown_topology);
    options.topologies = specs;
  };
  app.add_option_function<std::vector<std::string>>(
         "--topology", take_topologies,
         "the network that data has to keep to: ring, mesh:2x4, torus:4x4; for --explain also star (default), "
         "fully_connected, fat_tree:4, and several")
      ->envname("RANVIER_TOPOLOGY")
      ->type_name("SPEC");
  app.add_option("--json", options.json_file, "write the results there; - is stdout, which has no table then")
      ->type_name("FILE");

  if (cli::parse(app, arguments)) return std::nullopt;

  const auto step_factor = parse_number<double>(factor);
  if (!step_factor || *step_factor <= 1)
    throw Error(ErrorKind::usage, fmt::format("--stepfactor '{}' is not a number above 1", factor));
  options.step_factor = *step_factor;
  options.dead_after = std::chrono::milliseconds(dead_after_ms);
  options.collective = collective_named(collective);
  options.root = static_cast<Rank>(root);
  options.buffers = buffers == "ranvier" ? Buffers::ranvier : Buffers::malloc;
  if (options.explain && options.topologies.empty()) options.topologies = {"star"};
  if (ranks) options.ranks = static_cast<Rank>(*ranks);
  if (baseline_flag->count() > 0) take_baselines(baselines, options);
  // As they are mostly called. A broadcast has one buffer in MPI and in torch.
  const bool default_in_place = options.collective == Collective::all_reduce ||
                                options.collective == Collective::reduce || options.collective == Collective::broadcast;
  options.in_place = out_of_place ? false : in_place || default_in_place;
  if (app.count("--latency-samples") > 0 && !options.compare)
    throw Error(ErrorKind::usage, "--latency-samples is of --compare-transports; give that, too, or leave it out");
  refuse_contradictions(options);
  if (ranks) cli::check_ports(options.ports, *ranks);
  refuse_overwriting(options);
  return options;
}

Job job_of(const Options& options, std::size_t bytes, Rank world) {
  refuse_unfit_root(options, world);
  Job job;
  job.collective = options.collective;
  job.dtype = options.dtype;
  job.op = options.op;
  job.in_place = options.in_place;
  job.root = options.root;
  if (options.collective == Collective::neighbor_exchange && options.algorithm != "auto")
    job.algorithm = options.algorithm;
  job.count = job_count(job, bytes, world);
  if (parse_transport(options.transport).loss > 0 && job.collective == Collective::all_reduce &&
      job.dtype == DType::f32)
    job.fill = Fill::alike;
  return job;
}

std::vector<std::size_t> sizes(const Options& options) {
  if (options.collective == Collective::barrier) return {0};
  std::vector<std::size_t> result;
  for (std::size_t bytes = options.min_bytes; bytes <= options.max_bytes;) {
    result.push_back(bytes);
    const double next = std::floor(static_cast<double>(bytes) * options.step_factor);
    if (next > static_cast<double>(options.max_bytes)) break;
    bytes = std::max(bytes + 1, static_cast<std::size_t>(next));
  }
  return result;
}

}  // namespace ranvier::bench
