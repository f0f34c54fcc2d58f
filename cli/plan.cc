// ranvier plan: how to communicate, by simulating every way that may be the best.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "commands.h"
#include "machine.h"
#include "output.h"
#include "plan/options.h"
#include "plan/planner.h"
#include "plan/replan.h"
#include "plan/words.h"
#include "ranvier/error.h"
#include "ranvier/plan_file.h"
#include "ranvier/plan_judge.h"
#include "ranvier/tuning.h"

namespace ranvier::cli {
namespace {

using nlohmann::json;

TuningTable table_of(const PlanNetwork& network) {
  std::vector<TuningRow> rows;
  for (const auto& each : network.by_size)
    rows.push_back({.collective = Collective::all_reduce,
                    .transport = network.transport,
                    .ranks = network.topology.world,
                    .up_to = each.up_to,
                    .algorithm = each.algorithm});
  TuningTable table;
  table.replace(rows);
  return table;
}

// What takes the place of a plan that was wrong.
void run_again(const planning::Again& again, const planning::SearchLimit& limit, const ResultFile& output, bool says) {
  const Plan followed = read_plan(again.file);
  if (!followed.unequal.stragglers.empty())
    throw Error(ErrorKind::usage,
                fmt::format("{} is of stragglers in particular steps, which no others are like; leave "
                            "--straggle out of what it was planned by",
                            again.file));
  if (period_of(followed.sync, static_cast<std::uint64_t>(followed.ranks)) == 0)
    throw Error(ErrorKind::usage,
                fmt::format("{} is by {}, which has no period, or whose workers take no algorithm from a plan; make "
                            "another one with ranvier plan --workload",
                            again.file, followed.sync));
  const auto [plan, reason] = planning::replan(followed, again.measured, limit);
  if (says) fmt::print("{}\n", reason);
  output.write(to_toml(plan));
}

// Thousands of ranks and ways to divide a model among them take minutes.
void tell_how_to_end(planning::Budget::Clock::duration passed) {
  constexpr auto is_long = std::chrono::seconds(10);
  static bool told = false;
  if (told || passed < is_long) return;
  told = true;
  fmt::print(stderr, "ranvier plan: still searching; --limit SECONDS ends that with the best that is known by then\n");
}

std::pair<planning::Question, planning::Answer> searched(const planning::Options& options) {
  planning::Budget budget(options.limit, options.limit.time ? nullptr : tell_how_to_end);
  try {
    planning::Question question = planning::question_of(options, budget);
    planning::Answer answer = planning::answer(question);
    if (budget.ended_something())
      answer.plan.because.push_back(fmt::format("search: cut short by {}", budget.in_words()));
    return {std::move(question), std::move(answer)};
  } catch (const Error& ended) {
    if (ended.kind() != ErrorKind::timeout) throw;
    throw Error(ErrorKind::timeout,
                fmt::format("no way to communicate is known after {}; give it longer", budget.in_words()));
  }
}

// What no plan can name is found before the search.
void check_names(const planning::Options& options) {
  for (std::size_t i = 0; !options.output.empty() && i < options.network.count(); ++i)
    (void)to_toml(
        {.workload = options.workload, .communicator = options.communicator_file, .network = options.network.spec(i)});
}

// "chosen: ring, …" as a line of a table.
void print_reason(const std::string& sentence) {
  const auto colon = sentence.find(": ");
  fmt::print("{:<11} {}\n", sentence.substr(0, colon), sentence.substr(colon + 2));
}

}  // namespace

int run_plan(const Arguments& arguments) {
  const auto options = planning::parse_options(arguments);
  if (!options) return 0;
  if (options->again) {
    run_again(*options->again, options->limit, ResultFile(options->output, "--output"), options->output != "-");
    return 0;
  }
  const JsonFile file(options->json);
  const ResultFile tuning(options->tuning, "--tuning");
  const ResultFile output(options->output, "--output");
  check_names(*options);
  const auto [question, answer] = searched(*options);
  if (options->json != "-" && options->output != "-") {
    fmt::print("# {} on {} of {} ranks\n", options->workload, answer.plan.network, options->world);
    for (const auto& sentence : answer.plan.because) print_reason(sentence);
  }
  tuning.write(table_of(question.networks[answer.ranked.front().network]).text());
  output.write(to_toml(answer.plan));
  json choices = json::array();
  for (const auto& choice : answer.ranked) choices.push_back(planning::to_json(question, choice));
  file.write({{"choices", choices}, {"because", answer.plan.because}, {"environment", environment()}});
  return 0;
}

}  // namespace ranvier::cli
