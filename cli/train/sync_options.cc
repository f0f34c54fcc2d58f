#include "train/sync_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "integrations/trainer/division.h"
#include "ranvier/error.h"
#include "ranvier/guest_service.h"
#include "ranvier/sync.h"
#include "ranvier/synchronizer.h"
#include "ranvier/text.h"

namespace ranvier::train {
namespace {

constexpr std::string_view chosen_by_measuring = "auto";

std::vector<double> take_speeds(const std::string& words) {
  std::vector<double> speeds;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    const auto speed = parse_number<double>(std::string_view(words).substr(begin, end - begin));
    if (!speed || !(*speed >= 0.001 && *speed <= 1))
      throw Error(ErrorKind::usage, fmt::format("--speeds '{}' are not numbers from 0.001 to 1; write one for each "
                                                "worker, such as 1,1,0.5,0.25",
                                                words));
    speeds.push_back(*speed);
    begin = end + 1;
  }
  return speeds;
}

void take_jitter(const std::string& word, trainer::TrainSettings& run) {
  const std::size_t times = word.find('x');
  const auto share = parse_number<double>(std::string_view(word).substr(0, times));
  const auto factor =
      times == std::string::npos ? std::nullopt : parse_number<double>(std::string_view(word).substr(times + 1));
  if (!share || !factor || !(*share >= 0 && *share <= 1) || !(*factor >= 1 && *factor <= 1000))
    throw Error(ErrorKind::usage, fmt::format("--jitter '{}' is not a share of the steps and how many times as long "
                                              "they take; write 0.05x4",
                                              word));
  run.jitter_share = *share;
  run.jitter_factor = *factor;
}

// "2:100-200x4,0:300-400x2": of rank 2 the steps from 100 to 199 take four times as long, …
std::vector<trainer::Straggler> take_stragglers(const std::string& words) {
  std::vector<trainer::Straggler> stragglers;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    const auto word = std::string_view(words).substr(begin, end - begin);
    const auto rank = word.substr(0, word.find(':'));
    const auto rest = word.substr(std::min(rank.size() + 1, word.size()));
    const auto from = rest.substr(0, rest.find('-'));
    const auto span = rest.substr(std::min(from.size() + 1, rest.size()));
    const auto to = span.substr(0, span.find('x'));
    const auto factor = parse_number<double>(span.substr(std::min(to.size() + 1, span.size())));
    const auto whole = [](std::string_view number) { return parse_number<std::uint32_t>(number); };
    if (!whole(rank) || !whole(from) || !whole(to) || *whole(from) >= *whole(to) || !factor ||
        !(*factor >= 1 && *factor <= 1000))
      throw Error(ErrorKind::usage, fmt::format("--straggle '{}' is not a rank, its steps and how many times as long "
                                                "they take; write 2:100-200x4, several with commas between",
                                                words));
    stragglers.push_back(
        {.rank = static_cast<Rank>(*whole(rank)), .when = {.from = *whole(from), .to = *whole(to), .factor = *factor}});
    begin = end + 1;
  }
  return stragglers;
}

std::string policy_help() {
  std::string names;
  for (const auto& policy : sync_policies()) names += fmt::format("{}{}", names.empty() ? "" : ", ", policy.name);
  return fmt::format("who averages what and when: {}, as in node:16, or auto; docs/synchronization.md", names);
}

// What names workers names some that there are.
void check_workers(const trainer::TrainSettings& run, const std::string& sync, std::optional<Rank> workers) {
  if (!workers) return;
  const Rank replicas = std::max(*workers / trainer::parse_division(run.parallel).parts, 1);
  for (const auto& each : run.stragglers)
    if (each.rank >= replicas)
      throw Error(ErrorKind::usage,
                  fmt::format("--straggle names rank {} of {} workers; count them from 0", each.rank, replicas));
  check_places(sync, run.place, replicas);
  if (run.speeds.size() > static_cast<std::size_t>(replicas))
    throw Error(ErrorKind::usage,
                fmt::format("--speeds has {} numbers for {} workers; give one for each", run.speeds.size(), replicas));
}

void check_auto(const trainer::TrainSettings& run, std::optional<Rank> workers) {
  if (run.compress != "none")
    throw Error(ErrorKind::usage, fmt::format("--sync auto compares policies that send values as they are; leave out "
                                              "--compress {}, or name the policy",
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
           if (spec != chosen_by_measuring) check_sync_policy(spec);
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
  app.add_option_function<std::string>(
         "--speeds", [&run](const std::string& words) { run.speeds = take_speeds(words); },
         "slow workers down by sleeping: 1,1,0.5,0.25, where 0.5 computes half as fast")
      ->type_name("X,…");
  app.add_option_function<std::string>(
         "--jitter", [&run](const std::string& word) { take_jitter(word, run); },
         "some steps take longer at random: 0.05x4, one in twenty four times as long")
      ->type_name("SHARExTIMES");
  app.add_option_function<std::string>(
         "--straggle", [&run](const std::string& words) { run.stragglers = take_stragglers(words); },
         "slow a worker down for a while: 2:100-200x4, rank 2 in steps 100 to 199 four times")
      ->type_name("RANK:FROM-TOxTIMES,…");
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

void check_sync_options(const CLI::App& app, Options& options) {
  trainer::TrainSettings& run = options.trainer;
  const std::optional<Rank> workers = options.workers;
  if (run.serve > 0 && (run.sync == chosen_by_measuring || !make_sync_policy(run.sync, {})->server()))
    throw Error(ErrorKind::usage, fmt::format("--serve is for parameter servers, and --sync {} has none; take --sync "
                                              "async, ssp or group",
                                              run.sync));
  if (run.serve > 0) check_guest_security(options.communicator.security);
  // 0.1 is a rate for descent along gradients; Adam's steps have a length of their own.
  if (app.get_option("--lr")->count() == 0 && (run.optimizer == "adamw" || run.optimizer == "lamb"))
    run.learning_rate = 0.002;
  if (run.target_accuracy && run.model == "gan")
    throw Error(ErrorKind::usage, "a gan has no accuracy; stop it by its Fréchet distance, --target-loss");
  if (run.sync == chosen_by_measuring) return check_auto(run, workers);
  const auto policy = make_sync_policy(run.sync, {});
  if (!policy->takes_codec() && run.compress != "none")
    throw Error(ErrorKind::usage,
                fmt::format("--sync {} sends values as they are; leave out --compress {}", run.sync, run.compress));
  if (policy->server()) {
    if (workers) workers_of(*policy->server(), *workers);
    if (run.optimizer != "sgd" || run.weight_decay > 0)
      throw Error(ErrorKind::usage,
                  fmt::format("parameter servers take steps along gradients as they come; with --sync "
                              "{} leave --optimizer at sgd and --weight-decay at 0",
                              run.sync));
  }
  if ((policy->server() || policy->meets_peers()) && run.split_by_speed)
    throw Error(
        ErrorKind::usage,
        fmt::format("with --sync {} each worker takes samples at its own pace; leave out --split speed", run.sync));
  if (!policy->weighs_samples() && run.split_by_speed)
    throw Error(ErrorKind::usage,
                fmt::format("--sync {} does not weigh workers by their samples; leave out --split speed", run.sync));
  check_workers(run, run.sync, workers);
}

}  // namespace ranvier::train
