#include "train/sync_options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>

#include "ranvier/error.h"
#include "ranvier/sync.h"
#include "ranvier/synchronizer.h"

namespace ranvier::train {
namespace {

std::optional<double> number_in(std::string_view word) {
  double number = 0;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
  return problem == std::errc{} && end == word.data() + word.size() ? std::optional(number) : std::nullopt;
}

std::vector<double> take_speeds(const std::string& words) {
  std::vector<double> speeds;
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    const auto speed = number_in(std::string_view(words).substr(begin, end - begin));
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
  const auto share = number_in(std::string_view(word).substr(0, times));
  const auto factor = times == std::string::npos ? std::nullopt : number_in(std::string_view(word).substr(times + 1));
  if (!share || !factor || !(*share >= 0 && *share <= 1) || !(*factor >= 1 && *factor <= 1000))
    throw Error(ErrorKind::usage, fmt::format("--jitter '{}' is not a share of the steps and how many times as long "
                                              "they take; write 0.05x4",
                                              word));
  run.jitter_share = *share;
  run.jitter_factor = *factor;
}

std::string policy_help() {
  std::string names;
  for (const auto& policy : sync_policies()) names += fmt::format("{}{}", names.empty() ? "" : ", ", policy.name);
  return fmt::format("who averages what and when: {}, as in node:16; docs/synchronization.md", names);
}

}  // namespace

void add_sync_options(CLI::App& app, trainer::TrainSettings& run) {
  app.add_option_function<std::string>(
         "--sync",
         [&run](const std::string& spec) {
           check_sync_policy(spec);
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
  const auto optimizers = trainer::optimizer_names();
  cli::add_name(app, "--optimizer", run.optimizer, "what makes a step of gradients",
                {optimizers.begin(), optimizers.end()});
  app.add_option_function<std::string>(
         "--weight-decay",
         [&run](const std::string& word) {
           const auto number = number_in(word);
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

void check_sync_options(const CLI::App& app, trainer::TrainSettings& run, std::optional<Rank> workers) {
  // 0.1 is a rate for descent along gradients; Adam's steps have a length of their own.
  if (app.get_option("--lr")->count() == 0 && (run.optimizer == "adamw" || run.optimizer == "lamb"))
    run.learning_rate = 0.002;
  const auto policy = make_sync_policy(run.sync, {});
  if (!policy->takes_codec() && run.compress != "none")
    throw Error(ErrorKind::usage,
                fmt::format("--sync {} sends values as they are; leave out --compress {}", run.sync, run.compress));
  if (policy->server()) {
    if (run.optimizer != "sgd" || run.weight_decay > 0)
      throw Error(ErrorKind::usage,
                  fmt::format("parameter servers take steps along gradients as they come; with --sync "
                              "{} leave --optimizer at sgd and --weight-decay at 0",
                              run.sync));
    if (run.split_by_speed)
      throw Error(ErrorKind::usage, fmt::format("with --sync {} each worker takes samples at its own pace; leave out "
                                                "--split speed",
                                                run.sync));
  }
  if (!workers) return;
  check_places(run.sync, run.place, *workers);
  if (run.speeds.size() > static_cast<std::size_t>(*workers))
    throw Error(ErrorKind::usage,
                fmt::format("--speeds has {} numbers for {} workers; give one for each", run.speeds.size(), *workers));
}

}  // namespace ranvier::train
