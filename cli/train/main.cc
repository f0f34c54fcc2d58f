// The program `ranvier-train`, which `ranvier train` runs: starts the workers, or is one of them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "integrations/trainer/checkpoint.h"
#include "integrations/trainer/division.h"
#include "integrations/trainer/rendezvous.h"
#include "integrations/trainer/run_settings.h"
#include "launch.h"
#include "machine.h"
#include "meeting.h"
#include "output.h"
#include "ranvier/error.h"
#include "ranvier/store.h"
#include "train/options.h"
#include "train/plan.h"
#include "train/progress.h"
#include "train/record.h"
#include "train/replan.h"
#include "train/report.h"

namespace ranvier::train {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<Communicator> join(const cli::WorldPlace& place, const CommunicatorOptions& options) {
  if (place.launcher.empty()) return Communicator::connect(*memory_store(), 0, 1, options);
  if (place.store.empty()) {
    const auto store = trainer::tcp_store({.address = place.master_address,
                                           .port = place.master_port,
                                           .serve = place.rank == 0 && !place.master_runs_elsewhere,
                                           .prefix = "ranvier/" + place.attempt},
                                          options.join_timeout);
    auto communicator = Communicator::connect(*store, place.rank, place.world, options);
    communicator->barrier();  // the store may end with this scope: rank 0 serves it
    return communicator;
  }
  return cli::meet(place, options);
}

// What can be found out before any work begins: every file that is to be read or written.
void check_files(const Options& options) {
  const cli::JsonFile writable(options.json_file);
  if (!options.record_folder.empty()) {
    std::error_code problem;
    fs::create_directories(options.record_folder, problem);
    const cli::ResultFile recorded(workload_file(options.record_folder), "--record");
  }
  if (!options.trainer.resume.empty()) trainer::load_checkpoint(options.trainer.resume);
  if (options.trainer.save.empty()) return;
  trainer::check_checkpoint_place(options.trainer.save);
}

int work(const Options& options, cli::WorldPlace place) {
  check_plan(options, place.world);
  if (options.plan) place.rank = rank_at(*options.plan, place.rank);
  if (place.rank == 0) check_files(options);
  const auto data = trainer::load_dataset(options.data);
  const auto division = trainer::parse_division(options.trainer.parallel);
  trainer::check_model(options.trainer.model, data);
  trainer::check_division(division, options.trainer.model, place.world);
  auto settings = options.trainer;
  settings.threads = std::max(1, cli::usable_cores() / place.local_world);
  auto terms = options.communicator;
  terms.measure = options.measure.value_or(place.local_world < place.world);
  const auto communicator = join(place, terms);

  Progress progress(settings.batch * settings.accumulate *
                    trainer::training_ranks(settings.sync, place.world / division.parts));
  const auto result = trainer::train(
      settings, data, *communicator,
      {.on_step = [&](std::size_t step, std::size_t last, double loss) { progress.on_step(step, last, loss); },
       .on_evaluation = [&](const trainer::Evaluation& evaluation) { progress.on_evaluation(evaluation); },
       .on_change = [&](const trainer::ChangedPlan& changed) { progress.on_change(changed); },
       .replan = options.plan ? trainer::Replan([&](const auto& current, const auto& planned, const auto& measured) {
         return replan(*options.plan, current, planned, measured, options.replan_limit);
       })
                              : nullptr});
  if (place.rank != 0) return 0;
  const Report report{options, *communicator, result};
  if (result.recorded) write_workload(report);
  cli::JsonFile(options.json_file).write(to_json(report));
  if (options.json_file != "-") fmt::print("{}", to_table(report));
  return 0;
}

int launch(const Options& options) {
  // Found here, a mistake is reported once and not by every worker.
  check_plan(options, *options.workers);
  check_files(options);
  trainer::check_model(options.trainer.model, trainer::load_dataset(options.data));
  cli::Launch workers{.count = *options.workers, .command = {cli::this_program()}};
  workers.command.insert(workers.command.end(), options.arguments.begin(), options.arguments.end());
  return cli::run_workers(workers);
}

int run(const cli::Arguments& arguments, std::string& speaker) {
  const auto options = parse_options(arguments);
  if (!options) return 0;
  const auto place = cli::world_from_environment();
  if (!place) return options->workers.value_or(1) > 1 ? launch(*options) : work(*options, {});
  if (options->workers && place->launcher != "ranvier")
    throw Error(ErrorKind::usage, fmt::format("--workers starts processes, and {} has started this one already as rank "
                                              "{} of {}; leave out --workers",
                                              place->launcher, place->rank, place->world));
  speaker = fmt::format("ranvier train, rank {}", place->rank);
  return work(*options, *place);
}

}  // namespace
}  // namespace ranvier::train

int main(int argc, char** argv) {
  std::string speaker = "ranvier train";
  try {
    return ranvier::cli::after_output(ranvier::train::run({argv + 1, argv + argc}, speaker));
  } catch (const ranvier::Error& problem) {
    // One write, so that the words of several workers do not mix.
    fmt::print(stderr, "{}", fmt::format("{}: {}\n{}", speaker, problem.what(), problem.flight_record()));
    return problem.kind() == ranvier::ErrorKind::usage ? 2 : 1;
  } catch (const std::exception& problem) {
    fmt::print(stderr, "{}: {}\n", speaker, problem.what());
    return 1;
  }
}
