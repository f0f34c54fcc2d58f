// The program `ranvier-train`, which `ranvier train` runs: starts the workers, or is one of them.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "integrations/trainer/checkpoint.h"
#include "integrations/trainer/division.h"
#include "integrations/trainer/run_settings.h"
#include "launch.h"
#include "machine.h"
#include "meeting.h"
#include "output.h"
#include "ranvier/error.h"
#include "ranvier/server.h"
#include "ranvier/sync.h"
#include "ranvier/synchronizer.h"
#include "train/join.h"
#include "train/membership.h"
#include "train/options.h"
#include "train/plan.h"
#include "train/progress.h"
#include "train/record.h"
#include "train/report.h"
#include "train/sync_options.h"

namespace ranvier::train {
namespace {

// What can be found out before any work begins: that there is such a run, and, of the process that reads and writes its
// files, that they can be read and written. Leaves nothing.
trainer::Dataset prepare(const Options& options, Rank world, bool has_files) {
  const trainer::TrainSettings& run = options.trainer;
  if (has_files) {
    const cli::JsonFile writable(options.json_file);
    if (!options.record_folder.empty()) check_record_folder(options.record_folder);
    if (!run.save.empty()) trainer::check_checkpoint_place(run.save);
  }
  auto data = trainer::load_dataset(options.data);
  const auto division = trainer::parse_division(run.parallel);
  trainer::check_model(run.model, data);
  trainer::check_division(division, run.model, world);
  const Rank replicas = world / division.parts;
  trainer::check_batch(run, data, replicas);
  if (has_files && !run.resume.empty())
    trainer::check_identity(run.resume, trainer::load_checkpoint(run.resume),
                            trainer::identity_of(run, data, replicas));
  return data;
}

// A run that its checkpoint leaves nothing to do.
void say_that_it_had_ended(const Options& options, const trainer::TrainResult& result, const std::string& speaker) {
  const trainer::TrainSettings& run = options.trainer;
  if (run.resume.empty() || result.steps_here > 0) return;
  const bool by_steps = run.steps < steps_of_epochs(run, result.steps_per_epoch);
  cli::say(fmt::format("{}: {} is at step {} already, and {} {} asks for no more\n", speaker, run.resume.string(),
                       result.steps, by_steps ? "--steps" : "--epochs",
                       by_steps ? std::to_string(run.steps) : fmt::format("{}", run.epochs)));
}

void conclude(const Report& report, const std::string& speaker) {
  say_that_it_had_ended(report.options, report.result, speaker);
  const std::string& file = report.options.json_file;
  if (file != "-") fmt::print("{}", to_table(report));  // first: a file may find no room
  if (report.result.recorded) write_workload(report);
  cli::JsonFile(file).write(to_json(report));
  if (!report.result.unsaved.empty()) throw Error(ErrorKind::config, report.result.unsaved);
}

// What suits only the workers that there are at first would end, at the first loss, a run that is to go on.
void check_loss(const Options& options) {
  const Rank left = *options.workers - 1;
  try {
    check_meeting(options.communicator, left);
    check_places(options.trainer.sync, options.trainer.place, left);
    const auto policy = make_sync_policy(options.trainer.sync, {});
    if (policy->server()) workers_of(*policy->server(), left);
  } catch (const std::exception& why) {
    throw Error(ErrorKind::usage, fmt::format("--survive is to go on with {} of {} workers, which do not suit: {}",
                                              left, *options.workers, why.what()));
  }
}

// Of members, who meet anew: one that is lost meanwhile is waited for so long.
constexpr std::chrono::milliseconds longest_meeting = std::chrono::seconds(30);

// What is said where others go on: why, and how many there are now. `come`: so many of them are new.
std::string news_of_members(std::string why, std::size_t come, Rank world) {
  const auto workers = [](auto count, std::string_view one, std::string_view several) {
    return fmt::format("{} {}", count, count == 1 ? one : several);
  };
  if (come > 0) why += (why.empty() ? "" : "; ") + workers(come, "worker has come", "workers have come");
  if (why.empty()) why = "who had come is gone again";
  return fmt::format("{}; {} on", why, workers(world, "worker goes", "workers go"));
}

// Of members, one of which does it. What one cannot write the others could not either.
int report_to_all(const Report& report, const std::string& speaker, const std::filesystem::path& first_store) {
  try {
    conclude(report, speaker);
  } catch (const std::exception&) {
    cli::announce_nobody_left(first_store);
    throw;
  }
  std::fflush(stdout) == 0 ? cli::announce_result(first_store) : cli::announce_nobody_left(first_store);
  return 0;
}

// Until there is a result, which the first of them reports: by those that are left, and with those that come.
int train_among(Membership& members, const Options& options, CommunicatorOptions terms, const std::string& speaker,
                const std::function<trainer::TrainResult(Communicator&)>& train) {
  const auto first_store = members.place().store;
  if (!members.wait_to_be_let_in()) return 0;
  for (bool have_met = members.is_newcomer();;) {
    const bool is_first = members.place().rank == 0;
    std::string why;
    bool has_joined = false, is_done = false;
    std::function<void()> check;  // at first, where not all have shown yet that they live, who started them looks
    if (have_met) {
      terms.join_timeout = std::min(terms.join_timeout, longest_meeting);
      check = [&members] { members.require_all(); };
    }
    try {
      const auto communicator = join(members.place(), terms, check);
      have_met = has_joined = true;
      const auto result = train(*communicator);
      is_done = !result.is_paused;
      if (is_done && is_first)
        return report_to_all({options, *communicator, result, members.lost(), members.come()}, speaker, first_store);
    } catch (const Error& problem) {
      // Who is lost on the way to a meeting may not have been heard of there.
      if (!have_met || !(is_loss(problem) || (!has_joined && members.has_lost_any()))) throw;
      why = problem.what();
    }
    if (is_done && members.wait_for_result()) return 0;
    if (is_done) why = "somebody was lost before the result had been reported";
    const std::size_t had_come = members.come();
    if (!members.meet_anew(terms.timeout)) return 0;
    if (members.place().rank == 0)
      cli::say(fmt::format("{}: {}\n", speaker,
                           news_of_members(std::move(why), members.come() - had_come, members.place().world)));
  }
}

int work(const Options& options, cli::WorldPlace place, const std::string& speaker) {
  const auto is_first = [&place] { return place.rank == 0 && place.restart == 0; };
  trainer::Dataset data;
  try {
    if (options.workers && place.launcher != "ranvier" && !place.launcher.empty())
      cli::refuse_to_start(options.workers_source + "--workers", place);
    check_plan(options, place.world);
    check_unequal(options.trainer, place.world);
    if (options.plan) place.rank = rank_at(*options.plan, place.rank);
    data = prepare(options, place.world, is_first());
  } catch (const std::exception& why) {
    if (place.launcher.empty()) throw;
    const int code = cli::fail(speaker, why);  // before others are waited for, who may be late
    if (place.restart > 0) return code;        // nobody waits for this one
    decline(place, why, options.communicator.join_timeout);
    return code;
  }
  auto settings = options.trainer;
  const bool openmp_is_told = std::getenv("OMP_NUM_THREADS") != nullptr;
  settings.threads =
      options.threads.value_or(openmp_is_told ? 0 : std::max(1, cli::usable_cores() / place.local_world));
  auto terms = options.communicator;
  terms.measure = options.measure.value_or(place.local_world < place.world);
  terms.purpose = "ranvier train";
  const Rank replicas = place.world / trainer::parse_division(settings.parallel).parts;
  if (is_first()) {
    const bool is_one_node = settings.place.empty() && place.local_world == place.world;
    for (const std::string& remark : {trainer::remark_on_sync(settings, data, replicas, is_one_node),
                                      trainer::remark_on_warm_up(settings, data, replicas)})
      if (!remark.empty()) cli::say(speaker + ": " + remark + "\n");
  }
  const std::size_t workers = trainer::training_ranks(settings.sync, replicas);
  std::optional<Membership> members;
  if (options.survive) members.emplace(place, options.max_restarts);
  Progress progress(settings.batch * settings.accumulate * workers);
  const trainer::TrainEvents events{
      .on_step = [&](std::size_t step, std::size_t last, double loss) { progress.on_step(step, last, loss); },
      .on_evaluation = [&](const trainer::Evaluation& evaluation) { progress.on_evaluation(evaluation); },
      .on_change = [&](const trainer::ChangedPlan& changed) { progress.on_change(changed); },
      .on_unsaved = [&](const std::string& problem) { progress.on_unsaved(problem); },
      .replan = options.plan ? trainer::Replan([&](const auto& current, const auto& wrong) {
        return plan_again(*options.plan, current, wrong, options.replan_limit);
      })
                             : nullptr,
      .is_to_pause = [&] { return members && members->is_awaited(); }};
  trainer::Kept kept{.workers = workers, .ranks = replicas};
  const auto train = [&](Communicator& communicator) {
    return trainer::train(settings, data, communicator, events, members ? &kept : nullptr);
  };
  if (members) return train_among(*members, options, terms, speaker, train);
  const auto communicator = join(place, terms);
  const auto result = train(*communicator);
  if (place.rank == 0) conclude({options, *communicator, result}, speaker);
  return 0;
}

// What a process exits with that does this, and says what went wrong as `speaker`, which `body` may change.
int exit_code_of(const std::function<int(std::string& speaker)>& body) {
  std::string speaker = "ranvier train";
  try {
    return cli::after_output(body(speaker));
  } catch (const std::exception& problem) {
    return cli::fail(speaker, problem);
  }
}

// What a worker does that this program has started, and what it exits with. `speaker`: as whom a failure is told.
int work_as_rank(const Options& options, const cli::WorldPlace& place, std::string& speaker) {
  speaker = fmt::format("ranvier train, rank {}", place.rank);
  return work(options, place, speaker);
}

int launch(const Options& options) {
  // Found here, a mistake is reported once and not by every worker.
  check_plan(options, *options.workers);
  check_meeting(options.communicator, *options.workers);
  if (options.survive) check_loss(options);
  prepare(options, *options.workers, true);
  cli::Launch workers{.count = *options.workers,
                      .command = {cli::this_program()},
                      .work =
                          [&options] {
                            return exit_code_of([&options](std::string& speaker) {
                              return work_as_rank(options, cli::world_from_environment().value(), speaker);
                            });
                          },
                      .time_to_notice = std::chrono::milliseconds(700),  // of the second that others have to end
                      .longest_stop = options.communicator.dead_after,
                      .survive = options.survive,
                      .restarts = options.max_restarts};
  workers.command.insert(workers.command.end(), options.arguments.begin(), options.arguments.end());
  return cli::run_workers(workers);
}

int run(const cli::Arguments& arguments, std::string& speaker) {
  std::optional<Options> options;
  try {
    options = parse_options(arguments);
  } catch (const std::exception& why) {
    return cli::refuse_to_meet(
        speaker, why, [&](const cli::WorldPlace& place) { decline(place, why, CommunicatorOptions().join_timeout); });
  }
  if (!options) return 0;
  const auto place = cli::world_from_environment();
  if (!place) return options->workers.value_or(1) > 1 ? launch(*options) : work(*options, {}, speaker);
  return work_as_rank(*options, *place, speaker);
}

// Once a failure has been told, nobody is to wait for the end of torch's own state, which takes long on busy cores.
// What is registered after this, as MPI's end is, has run by then.
void leave_after_failure(int code, void*) {
  if (code == 0) return;
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace
}  // namespace ranvier::train

int main(int argc, char** argv) {
  // Every step takes and gives back the same memory. By glibc's defaults the kernel gets it, and it comes back page by
  // page and zeroed: a fifth of the time of the CNN's steps. 32 MiB is the most that the first one takes.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ranvier::cli::open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // as in cli/main.cc, for whoever starts this one by itself
  on_exit(ranvier::train::leave_after_failure, nullptr);
  return ranvier::train::exit_code_of([&](std::string& speaker) {
    return ranvier::train::run({argv + 1, argv + argc}, speaker);
  });
}
