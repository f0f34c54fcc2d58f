#include "train/sync_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "integrations/trainer/division.h"
#include "integrations/trainer/run_settings.h"
#include "ranvier/error.h"
#include "ranvier/guest_service.h"
#include "ranvier/sync.h"
#include "ranvier/synchronizer.h"
#include "ranvier/text.h"

namespace ranvier::train {
namespace {

std::string policy_help() {
  std::string names;
  for (const auto& policy : sync_policies()) names += fmt::format("{}{}", names.empty() ? "" : ", ", policy.name);
  return fmt::format("who averages what and when: {}, as in node:16, or auto; docs/synchronization.md", names);
}

// What names workers names some that there are.
void check_workers(const trainer::TrainSettings& run, const std::string& sync, std::optional<Rank> workers) {
  if (!workers) return;
  const Rank replicas = std::max(*workers / trainer::parse_division(run.parallel).parts, 1);
  check_places(sync, run.place, replicas);
  check_unequal(run, *workers);
}

void check_auto(const trainer::TrainSettings& run, std::optional<Rank> workers) {
  if (plan_exchange(run.compress).momentum() > 0)
    throw Error(ErrorKind::usage,
                fmt::format("--sync auto may choose a policy that averages parameters, and --compress "
                            "{} corrects the momentum of gradients; take another codec, or name "
                            "--sync bsp",
                            run.compress));
  if (run.split_by_speed)
    throw Error(ErrorKind::usage, "--sync auto decides about shares itself; leave out --split speed");
  if (run.record)
    throw Error(ErrorKind::usage, "--record wants steps that are all alike; name a policy instead of --sync auto");
  check_workers(run, "node:16", workers);
}

}  // namespace

void add_sync_options(CLI::App& app, trainer::TrainSettings& run) {
  app.add_option_function<std::string>(
         "--sync",
         [&run](const std::string& spec) {
           check_sync_policy_or_auto(spec);
           run.sync = spec;
         },
         policy_help())
      ->default_str(run.sync)
      ->type_name("SPEC");
  app.add_option(
         "--place", run.place,
         "so many nodes and racks of consecutive workers, such as node=2 or node=4,rack=2 (default: a node is a "
         "host)")
      ->type_name("LEVEL=N,…");
  app.add_option_function<std::string>(
         "--serve",
         [&run](const std::string& word) {
           const auto port = parse_number<std::uint16_t>(word);
           if (!port || *port == 0)
             throw Error(ErrorKind::usage, fmt::format("--serve '{}' is not a port from 1 to 65535", word));
           run.serve = *port;
         },
         "let other programs push gradients to the parameter servers and pull from them, by gRPC at this port")
      ->type_name("PORT");
  const auto optimizers = trainer::optimizer_names();
  cli::add_name(app, "--optimizer", run.optimizer, "what makes a step of gradients",
                {optimizers.begin(), optimizers.end()});
  app.add_option_function<std::string>(
         "--weight-decay",
         [&run](const std::string& word) {
           const auto number = parse_number<double>(word);
           if (!number || !(*number >= 0 && *number <= 10))
             throw Error(ErrorKind::usage, fmt::format("--weight-decay '{}' is not a number from 0 to 10", word));
           run.weight_decay = *number;
         },
         "of the optimizer (default: 0)")
      ->type_name("X");
  cli::add_unequal_workers(app, run.unequal, "slow workers down by sleeping");
  app.add_option_function<std::string>(
         "--sample-ms",
         [&run](const std::string& word) {
           const auto number = parse_number<double>(word);
           if (!number || !(*number >= 0.001 && *number <= 60'000))
             throw Error(ErrorKind::usage,
                         fmt::format("--sample-ms '{}' is not a number of milliseconds from 0.001 to 60000", word));
           run.sample_ms = *number;
         },
         "that computing a sample lasts at speed 1 where it is done sooner, by sleeping (default: what it takes)")
      ->type_name("MS");
  app.add_option_function<std::string>(
         "--split",
         [&run](const std::string& word) {
           if (word != "even" && word != "speed")
             throw Error(ErrorKind::usage, fmt::format("--split '{}' is neither even nor speed", word));
           run.split_by_speed = word == "speed";
         },
         "samples of a step: even, or by each worker's measured speed")
      ->default_str("even")
      ->type_name("NAME");
}

void check_unequal(const trainer::TrainSettings& run, Rank workers) {
  const Rank replicas = std::max(workers / trainer::parse_division(run.parallel).parts, 1);
  check_workers(run.unequal, static_cast<std::uint64_t>(replicas));
  // Ranks that only serve compute nothing, and may have a speed or none.
  if (run.unequal.speeds.size() != trainer::training_ranks(run.sync, replicas))
    check_speeds(run.unequal, static_cast<std::uint64_t>(replicas));
}

void check_sync_options(const CLI::App& app, Options& options) {
  trainer::TrainSettings& run = options.trainer;
  const std::optional<Rank> workers = options.workers;
  if (run.serve > 0 && (run.sync == chosen_by_measuring || !make_sync_policy(run.sync, {})->server()))
    throw Error(ErrorKind::usage, fmt::format("--serve is for parameter servers, and --sync {} has none; take --sync "
                                              "async, ssp or group",
                                              run.sync));
  if (run.serve > 0) check_guest_security(options.communicator.security);
  // 0.1 is a rate for descent along gradients, by which a GAN's two networks drive each other apart; Adam's steps have
  // a length of their own.
  if (app.get_option("--lr")->count() == 0) {
    if (run.optimizer == "adamw" || run.optimizer == "lamb")
      run.learning_rate = 0.002;
    else if (run.model == "gan")
      run.learning_rate = 0.005;
  }
  if (run.target_accuracy && run.model == "gan")
    throw Error(ErrorKind::usage, "a gan has no accuracy; stop it by its Fréchet distance, --target-loss");
  if (run.sync == chosen_by_measuring) return check_auto(run, workers);
  const auto policy = make_sync_policy(run.sync, {});
  check_compress(*policy, run.compress);
  trainer::check_optimizer(run);
  if (policy->server()) {
    if (workers) workers_of(*policy->server(), *workers);
    if (run.optimizer != "sgd" || run.weight_decay > 0)
      throw Error(ErrorKind::usage,
                  fmt::format("parameter servers take steps along gradients as they come; with --sync "
                              "{} leave --optimizer at sgd and --weight-decay at 0",
                              run.sync));
  }
  if (policy->goes_at_own_pace() && run.split_by_speed)
    throw Error(
        ErrorKind::usage,
        fmt::format("with --sync {} each worker takes samples at its own pace; leave out --split speed", run.sync));
  if (!policy->weighs_samples() && run.split_by_speed)
    throw Error(ErrorKind::usage,
                fmt::format("--sync {} does not weigh workers by their samples; leave out --split speed", run.sync));
  check_workers(run, run.sync, workers);
}

}  // namespace ranvier::train
