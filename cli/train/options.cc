#include "train/options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>

#include "integrations/trainer/checkpoint.h"
#include "integrations/trainer/division.h"
#include "ranvier/error.h"
#include "ranvier/exchange.h"
#include "ranvier/schedule.h"
#include "ranvier/text.h"
#include "train/config.h"
#include "train/plan.h"
#include "train/record.h"
#include "train/sync_options.h"

namespace ranvier::train {
namespace {

constexpr const char* examples = R"(
Settings come from flags, then RANVIER_* variables (RANVIER_LINK_RATE for --link-rate), then the file of --config, then
that of --plan.
Under torchrun, mpirun or srun leave out --workers: each process finds its place in its environment.

Examples:
  ranvier train --workers 4
  ranvier train --workers 4 --link-rate 200Mbit --compress bf16 --json run.json
  ranvier train --workers 4 --record recorded --steps 60     then: ranvier plan --workload recorded/workload.toml …
  ranvier train --workers 4 --plan plan.toml
  ranvier train --workers 4 --model transformer --data book.txt --optimizer adamw --sync diloco:30
  torchrun --no-python --nproc-per-node 4 ranvier train --model mlp
  mpirun -n 4 ranvier train --save checkpoint.ranvier)";

// A decimal number above 0, or from `least`, and up to `most`.
void add_number(CLI::App& app, const std::string& flag, const std::string& help, double most,
                const std::function<void(double)>& set, double least = 0) {
  const auto take = [flag, most, set, least](const std::string& word) {
    const auto number = parse_number<double>(word);
    if (!number || *number <= 0 || *number < least || *number > most)
      throw Error(ErrorKind::usage, fmt::format("{} '{}' is not a number {} up to {}", flag, word,
                                                least > 0 ? fmt::format("from {}", least) : "above 0 and", most));
    set(*number);
  };
  app.add_option_function<std::string>(flag, take, help)->type_name("X");
}

std::vector<std::string_view> algorithm_names() {
  std::vector<std::string_view> names{"auto", "vendor"};
  for (const auto& algorithm : algorithms())
    if (std::find(algorithm.collectives.begin(), algorithm.collectives.end(), Collective::all_reduce) !=
        algorithm.collectives.end())
      names.push_back(algorithm.name);
  return names;
}

void take_rate(const std::string& word, Options& options) {
  options.communicator.link_bytes_per_second = cli::link_rate_of(word);
  options.link_rate = word;
}

// --link-rate can also be set by RANVIER_LINK_RATE; --json, --config and --record belong to one run only.
void name_variables(CLI::App& app) {
  for (auto* option : app.get_options()) {
    std::string name = option->get_lnames().front();
    if (name == "help" || name == "config" || name == "json" || name == "record") continue;
    std::replace(name.begin(), name.end(), '-', '_');
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
    option->envname("RANVIER_" + name);
  }
}

// Of what else is asked for, what takes models that are whole, and workers that decide by themselves.
void check_parallel(const Options& options) {
  const auto& run = options.trainer;
  const auto refuse = [&](std::string_view what, std::string_view why) {
    throw Error(ErrorKind::usage, fmt::format("--parallel {} does not go with {}, {}", run.parallel, what, why));
  };
  const auto division = trainer::parse_division(run.parallel);
  if (run.record && run.accumulate > 1 && division.way != trainer::Division::Way::pipeline)
    throw Error(ErrorKind::usage, "--record writes what a step of one pass consists of; leave out --accumulate");
  if (division.way == trainer::Division::Way::whole) return;
  if (options.workers) trainer::check_division(division, run.model, *options.workers);
  if (options.plan) refuse("--plan", "which is of whole models");
  if (run.split_by_speed) refuse("--split speed", "by which each part would take other samples; leave it even");
  if (run.sync == "auto") refuse("--sync auto", "since each part would decide by itself; name a policy");
  const auto policy = make_sync_policy(run.sync, {});
  if (policy->goes_at_own_pace() || policy->wants_spread())
    refuse("--sync " + run.sync, "by which each part would go its own way; name one of equal steps, such as local:16");
  if (division.way == trainer::Division::Way::tensor && (run.optimizer == "lars" || run.optimizer == "lamb"))
    refuse("--optimizer " + run.optimizer, "which measures whole tensors");
}

// What workers keep of themselves at each step, to go on from, is theirs and not all that a run may have.
void check_survive(const Options& options) {
  if (!options.survive && options.max_restarts > 0)
    throw Error(ErrorKind::usage,
                "--max-restarts starts lost workers again, for those that are left to be joined by; "
                "add --survive, with which they go on");
  if (!options.survive) return;
  const auto& run = options.trainer;
  const auto refuse = [](std::string_view what, std::string_view why) {
    throw Error(ErrorKind::usage, fmt::format("--survive does not go with {}, {}", what, why));
  };
  if (!options.workers || *options.workers < 2)
    refuse("workers that others start", "which end one another; give --workers, and as many as 2");
  if (run.parallel != "none") refuse("--parallel", "since a lost worker is a lost part of a model");
  if (run.record || options.plan) refuse("--record and --plan", "which are of one number of workers");
  if (run.serve > 0) refuse("--serve", "whose guests would have to be told");
  if (run.sync == "auto") refuse("--sync auto", "whose choice is not kept; name a policy");
  if (!make_sync_policy(run.sync, {})->weighs_samples())
    refuse("--sync " + run.sync, "by which all need as many samples, also those that are left");
  for (const std::string_view transport : {"mpi", "ucx"})
    if (options.communicator.transport.find(transport) != std::string::npos)
      refuse("--transport " + options.communicator.transport, "which a process joins once; take tcp, shm, udp or grpc");
}

// What flags give that is no setting yet, until all of them are known: settings of another type, and names of files to
// read.
struct Given {
  explicit Given(const Options& defaults)
      : sockets(static_cast<std::uint64_t>(defaults.communicator.tcp_sockets)),
        batch(defaults.trainer.batch),
        accumulate(defaults.trainer.accumulate),
        warm_up(defaults.trainer.warm_up),
        seed(defaults.trainer.seed),
        evaluate_every(defaults.trainer.evaluate_every),
        dead_after_ms(static_cast<std::uint64_t>(defaults.communicator.dead_after.count())),
        join_timeout(defaults.communicator.join_timeout) {}

  void put_into(Options& options) const {
    auto& run = options.trainer;
    auto& comm = options.communicator;
    if (workers) options.workers = static_cast<Rank>(*workers);
    if (steps) run.steps = *steps;
    if (threads) options.threads = static_cast<int>(*threads);
    if (max_restarts) options.max_restarts = static_cast<int>(*max_restarts);
    run.batch = batch;
    run.accumulate = accumulate;
    run.warm_up = warm_up;
    run.seed = seed;
    run.evaluate_every = evaluate_every;
    comm.tcp_sockets = static_cast<int>(sockets);
    comm.dead_after = std::chrono::milliseconds(dead_after_ms);
    comm.suspect_after = std::min(comm.suspect_after, comm.dead_after / 2);
    comm.join_timeout = std::min(join_timeout, comm.timeout);
  }

  std::optional<std::uint64_t> workers, steps, threads, max_restarts;
  std::uint64_t sockets, batch, accumulate, warm_up, seed, evaluate_every, dead_after_ms;
  std::chrono::milliseconds join_timeout;
  std::string plan, config;
};

// --resume and --save may be one file: training goes on in it.
void refuse_overwriting(const Options& options, const Given& given) {
  const auto& run = options.trainer;
  std::vector<cli::NamedFile> read = cli::files_of(options.communicator.security);
  read.insert(read.end(), {{"--config", given.config},
                           {"--plan", given.plan},
                           {"--tuning", options.communicator.tuning},
                           {"--data", options.data}});
  std::vector<cli::NamedFile> written{{"--json", options.json_file}};
  if (run.record) written.push_back({"--record", workload_file(options.record_folder)});
  cli::refuse_overwriting(written, {{"--resume", run.resume}});
  written.insert(written.begin(), {"--save", run.save});
  cli::refuse_overwriting(written, read);
}

void add_training_options(CLI::App& app, Options& options, Given& given) {
  auto& run = options.trainer;
  cli::add_count(app, "--workers", given.workers, "start so many processes here (default: train in this one)", 1, 1024);
  cli::add_count(app, "--threads", given.threads,
                 "of a worker's arithmetic (default: OMP_NUM_THREADS, or else this machine's cores by its workers)", 1,
                 1024);
  const auto models = trainer::model_names();
  cli::add_name(app, "--model", run.model, "what to train", {models.begin(), models.end()});
  app.add_option("--data", options.data, "fashion-mnist, a folder of IDX or CIFAR-10 files, or a file of text")
      ->capture_default_str();
  add_number(
      app, "--epochs",
      fmt::format("how long the learning rate takes to fall to 0, and what post-local takes a share of, such as 0.5 "
                  "(default: {})",
                  run.epochs),
      1'000'000, [&](double epochs) { run.epochs = epochs; });
  cli::add_count(app, "--steps", given.steps, "stop after so many, counted from the very start", 1);
  add_number(app, "--target-accuracy", "stop when so much of the test data is right, such as 0.88", 1,
             [&](double share) { run.target_accuracy = share; });
  add_number(app, "--target-loss", "stop when the test loss is no more than this; of gan, the Fréchet distance", 1e6,
             [&](double loss) { run.target_loss = loss; });
  cli::add_count(app, "--evaluate-every", given.evaluate_every, "steps between evaluations, besides one an epoch", 0);
  cli::add_count(app, "--batch", given.batch, "samples a worker and pass", 1, 1'000'000);
  app.add_option_function<std::string>(
         "--parallel",
         [&run](const std::string& spec) {
           trainer::parse_division(spec);
           run.parallel = spec;
         },
         "so many workers hold one model together: tensor:N cuts its full layers, pipeline:N deals its layers out, and "
         "--accumulate says in how many passes samples go through")
      ->default_str(run.parallel)
      ->type_name("SPEC");
  cli::add_count(app, "--accumulate", given.accumulate, "passes of which a step sums the gradients", 1, 1'000'000);
  add_number(app, "--lr",
             fmt::format("learning rate, at the start (default: {}, of gan 0.005; of adamw and lamb 0.002)",
                         run.learning_rate),
             1000, [&](double rate) { run.learning_rate = rate; });
  add_number(
      app, "--lr-batch",
      "--lr is right for so many samples a step of all workers; scale it to this run's (default: --lr is)", 1e9,
      [&](double samples) { run.learning_rate_batch = samples; }, 1);
  cli::add_count(app, "--warm-up", given.warm_up,
                 "steps in which the rate rises, from --lr where it is scaled, else from 0", 0, 1'000'000'000);
  cli::add_count(app, "--seed", given.seed, "of first weights and of the order of samples", 0, UINT64_MAX);
  app.add_option("--save", run.save, "write a checkpoint there after every epoch and at the end")->type_name("PATH");
  app.add_option("--resume", run.resume, "go on from this checkpoint")->type_name("PATH");
}

void add_communication_options(CLI::App& app, Options& options, Given& given) {
  auto& run = options.trainer;
  auto& comm = options.communicator;
  cli::add_transport(app, comm.transport, "how bytes travel");
  cli::add_algorithm(app, comm.algorithm, "schedule of all_reduce, vendor that of the transport's library (mpi)",
                     algorithm_names());
  app.add_option("--tuning", comm.tuning, "what auto chooses, as 'ranvier bench --tune' wrote it")->type_name("FILE");
  cli::add_switch(
      app, "--measure,!--no-measure", options.measure,
      "measure links and algorithms at start, for auto to choose by; else it goes by ordinary links, so that every run "
      "ends with the same bits (default: measure between hosts)");
  app.add_option("--topology", comm.topology, "the network that data has to keep to: ring, mesh:2x4, torus:2x4")
      ->type_name("SPEC");
  app.add_option_function<std::string>(
         "--compress",
         [&](const std::string& spec) {
           check_exchange(spec);
           run.compress = spec;
         },
         "codec of gradients, such as bf16, hadamard:32+int4 or none; 'ranvier codec list' has them")
      ->default_str(run.compress)
      ->type_name("SPEC");
  add_sync_options(app, run);
  cli::add_bytes(app, "--bucket", run.bucket_bytes, "gradients are sent once so many bytes are ready")
      ->default_str("256K");
  app.add_option_function<std::string>(
         "--link-rate", [&](const std::string& word) { take_rate(word, options); },
         "hold each worker's sending to this rate, such as 200Mbit")
      ->type_name("RATE");
  cli::add_listening(app, comm.interface_address, given.sockets, comm.ports, comm.security);
  cli::add_seconds(app, "--timeout", comm.timeout, "for one operation");
  cli::add_seconds(app, "--join-timeout", given.join_timeout, "for all workers to come; no more than --timeout");
  app.add_flag("--survive", options.survive, "where workers are lost, those of --workers that are left go on");
  cli::add_count(app, "--max-restarts", given.max_restarts,
                 "with --survive: lost workers are started again, so many in all, and join at an evaluation", 0, 1000);
  cli::add_count(app, "--dead-after-ms", given.dead_after_ms, "give up a worker of which nothing is heard for so long",
                 100, 86'400'000);
}

void add_file_options(CLI::App& app, Options& options, Given& given) {
  app.add_option("--json", options.json_file, "write settings and results there; - is stdout")->type_name("FILE");
  app.add_option("--plan", given.plan, "do as a file of ranvier plan says where no setting says otherwise, and compare")
      ->type_name("FILE");
  cli::add_seconds(app, "--replan-limit", options.replan_limit,
                   "for planning again where steps take other times than planned, while all workers wait");
  app.add_option("--record", options.record_folder,
                 "write what the first 50 steps consist of to DIR/workload.toml; those overlap nothing")
      ->type_name("DIR");
  app.add_option("--config", given.config, "settings by their names: link-rate = \"200Mbit\"")->type_name("TOML");
}

}  // namespace

std::optional<Options> parse_options(const cli::Arguments& arguments) {
  Options options;
  options.arguments = arguments;
  options.communicator.timeout = std::chrono::minutes(5);
  Given given(options);

  CLI::App app("Train a model over several workers.", "ranvier train");
  app.footer(examples);
  add_training_options(app, options, given);
  add_communication_options(app, options, given);
  add_file_options(app, options, given);
  name_variables(app);

  if (cli::parse(app, arguments)) return std::nullopt;
  const CLI::Option& workers = *app.get_option("--workers");
  options.workers_source = cli::variable_of(workers);
  if (!given.config.empty()) {
    if (workers.count() == 0) options.workers_source = given.config + ": ";
    apply_config(app, given.config);
  }
  if (!given.plan.empty() && !options.record_folder.empty())
    throw Error(ErrorKind::usage, "--record holds averaging back and would spoil --plan; give one of them");
  // The other ranks wait for a quarter of an hour (integrations/trainer/plan_change.cc).
  if (options.replan_limit > std::chrono::minutes(10))
    throw Error(ErrorKind::usage, "--replan-limit is for a search that holds all workers up; give it 600 s at most");
  if (!given.plan.empty()) apply_plan(app, read_plan(given.plan), options);

  given.put_into(options);
  auto& run = options.trainer;
  run.record = !options.record_folder.empty();
  check_parallel(options);
  check_survive(options);
  check_sync_options(app, options);
  if (!run.save.empty()) run.save = trainer::checkpoint_file(run.save);
  if (!run.resume.empty()) run.resume = trainer::checkpoint_file(run.resume);
  if (given.workers) cli::check_ports(options.communicator.ports, *given.workers);
  refuse_overwriting(options, given);
  return options;
}

}  // namespace ranvier::train
