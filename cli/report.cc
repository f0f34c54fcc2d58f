// ranvier report: runs of training side by side.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "output.h"
#include "ranvier/error.h"
#include "ranvier/text.h"
#include "report/comparison.h"

namespace ranvier::cli {
namespace {

constexpr auto notes = R"(
Each FILE is what `ranvier train --json FILE` wrote. Time to target is that of the first evaluation that has reached it, so
train with --evaluate-every N. Exposed is the share of the time in which workers waited for averages; what the one that
waits least waits is communication, and what others wait beyond that they wait for it.

Examples:
  ranvier report bsp.json node.json diloco.json
  ranvier report bsp.json node.json --target-accuracy 0.85 --json -)";

std::optional<double> number_of(const char* flag, const std::string& word) {
  if (word.empty()) return std::nullopt;
  const auto number = parse_number<double>(word);
  if (!number || !std::isfinite(*number))
    throw Error(ErrorKind::usage, fmt::format("{} '{}' is not a number", flag, word));
  return number;
}

}  // namespace

int run_report(const Arguments& arguments) {
  CLI::App app("Compare runs of training: what they reached, and what it took.", "ranvier report");
  app.footer(notes);
  std::vector<std::string> files;
  std::string accuracy, loss, json_path;
  app.add_option("FILE", files, "results of runs, in the order of the rows")->required();
  auto* const by_accuracy =
      app.add_option("--target-accuracy", accuracy, "time to it (default: the best that all runs have reached)")
          ->type_name("X");
  app.add_option("--target-loss", loss, "time to this test loss; of gan, Fréchet distance")
      ->type_name("X")
      ->excludes(by_accuracy);
  app.add_option("--json", json_path, "write the rows there; - is stdout, in place of the table")->type_name("FILE");
  if (const auto code = parse(app, arguments)) return *code;
  for (const std::string& each : files) refuse_overwriting({{"--json", json_path}}, {{"FILE", each}});
  const JsonFile file(json_path);
  const auto wanted_accuracy = number_of("--target-accuracy", accuracy);
  if (wanted_accuracy && !(*wanted_accuracy > 0 && *wanted_accuracy <= 1))
    throw Error(ErrorKind::usage, fmt::format("--target-accuracy {} is no share of the test data; give one above 0 and "
                                              "up to 1, such as 0.85",
                                              accuracy));
  const auto wanted_loss = number_of("--target-loss", loss);
  std::vector<TrainedRun> runs;
  for (const std::string& each : files) runs.push_back(read_run(each));
  const Target target = target_of(runs, wanted_accuracy, wanted_loss);
  if (json_path != "-") fmt::print("{}", to_table(runs, target));
  file.write(to_json(runs, target));
  return 0;
}

}  // namespace ranvier::cli
