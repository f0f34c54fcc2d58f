#include "report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "plan/import/text_file.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::cli {
namespace {

constexpr Measure by_accuracy{"accuracy", &TestScore::accuracy, false};
constexpr Measure by_loss{"loss", &TestScore::loss, true};
constexpr Measure by_distance{"Fréchet distance", &TestScore::frechet_distance, true};

std::optional<double> best(const Measure& measure, const TrainedRun& run) {
  std::optional<double> found;
  for (const auto& each : run.history)
    if (const auto score = each.test.*measure.score)
      found = !found ? *score : measure.falls ? std::min(*found, *score) : std::max(*found, *score);
  return found;
}

bool all_have(const Measure& measure, const std::vector<TrainedRun>& runs) {
  return std::all_of(runs.begin(), runs.end(), [&](const auto& run) { return best(measure, run).has_value(); });
}

Measure common(const std::vector<TrainedRun>& runs, const std::vector<Measure>& wanted) {
  for (const Measure& measure : wanted)
    if (all_have(measure, runs)) return measure;
  std::string names;
  for (const Measure& measure : wanted) names += fmt::format("{}{}", names.empty() ? "" : " or ", measure.name);
  throw Error(ErrorKind::usage,
              fmt::format("these runs have no {} in common; compare models that are judged alike", names));
}

// The worst of their best ones.
double reached_by_all(const Measure& measure, const std::vector<TrainedRun>& runs) {
  double value = *best(measure, runs.front());
  for (const TrainedRun& run : runs)
    value = measure.falls ? std::max(value, *best(measure, run)) : std::min(value, *best(measure, run));
  return value;
}

std::string number(std::optional<double> value, const char* form) {
  return value ? fmt::format(fmt::runtime(form), *value) : "-";
}
std::string text_of(const Measure& measure, std::optional<double> score) {
  return number(score ? *score * (measure.falls ? 1 : 100) : score, measure.falls ? "{:.4f}" : "{:.2f} %");
}

// Words beyond the first 128 code points of Unicode stand in a header only.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char each) { return (each & 0xC0) != 0x80; }));
}

constexpr std::size_t columns = 9;
using Cells = std::array<std::string, columns>;
constexpr std::size_t first_number = 2;  // numbers stand to the right; what is in front and the last one to the left

std::string lines(const std::vector<Cells>& rows) {
  std::string text;
  for (const Cells& row : rows) {
    std::string line;
    for (std::size_t column = 0; column < columns; ++column) {
      std::size_t widest = 0;
      for (const Cells& each : rows) widest = std::max(widest, width(each[column]));
      const std::string blank(widest - width(row[column]), ' ');
      const bool to_the_right = column >= first_number && column + 1 < columns;
      line += (column == 0 ? "" : "  ") + (to_the_right ? blank + row[column] : row[column] + blank);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text;
}

}  // namespace

Target target_of(const std::vector<TrainedRun>& runs, std::optional<double> accuracy, std::optional<double> loss) {
  if (accuracy) return {.measure = common(runs, {by_accuracy}), .value = *accuracy, .is_given = true};
  if (loss) return {.measure = common(runs, {by_distance, by_loss}), .value = *loss, .is_given = true};
  const Measure measure = common(runs, {by_distance, by_accuracy, by_loss});
  return {.measure = measure, .value = reached_by_all(measure, runs)};
}

std::optional<double> seconds_to(const Target& target, const TrainedRun& run) {
  const auto& [measure, value, is_given] = target;
  for (const auto& each : run.history)
    if (const auto score = each.test.*measure.score; score && (measure.falls ? *score <= value : *score >= value))
      return each.seconds;
  return std::nullopt;
}

// A file may say anything, and a terminal obeys some of it.
std::string shown(const std::string& text) { return plan::quotable(text, plan::most_letters_of_a_flag); }

std::string differences(const TrainedRun& run, const std::vector<TrainedRun>& runs) {
  std::string text;
  for (const auto& [name, value] : run.settings) {
    const bool is_shared = std::all_of(runs.begin(), runs.end(), [&, &name = name, &value = value](const auto& other) {
      const auto theirs = other.settings.find(name);
      return theirs != other.settings.end() && theirs->second == value;
    });
    if (!is_shared) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", shown(name), shown(value));
  }
  return text;
}

std::string to_table(const std::vector<TrainedRun>& runs, const Target& target) {
  const Measure& measure = target.measure;
  std::vector<Cells> rows{{"run", "differs by", std::string(measure.name), "s to target", "s in all", "sent a worker",
                           "rounds", "exposed", "bottleneck"}};
  for (const TrainedRun& run : runs)
    rows.push_back({shown(run.file), differences(run, runs), text_of(measure, run.history.back().test.*measure.score),
                    number(seconds_to(target, run), "{:.1f}"), number(run.seconds, "{:.1f}"),
                    human_bytes(run.bytes_per_worker), number(run.rounds, "{:.0f}"),
                    number(run.exposed_share * 100, "{:.1f} %"), bottleneck(run.shares)});
  std::string text = fmt::format("target: {} {}{}\n{}", measure.name, text_of(measure, target.value),
                                 target.is_given ? "" : ", the best that all of them have reached", lines(rows));
  for (const TrainedRun& run : runs)
    if (run.lost_share > 0)
      text += fmt::format("{} did without {:.3g} % of the entries of gradients, which were lost on the way\n",
                          shown(run.file), run.lost_share * 100);
  return text;
}

nlohmann::json to_json(const std::vector<TrainedRun>& runs, const Target& target) {
  const auto or_null = [](std::optional<double> value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
  nlohmann::json rows = nlohmann::json::array();
  for (const TrainedRun& run : runs)
    rows.push_back({{"file", run.file},
                    {"differs_by", differences(run, runs)},
                    {"score", or_null(run.history.back().test.*target.measure.score)},
                    {"seconds_to_target", or_null(seconds_to(target, run))},
                    {"seconds", run.seconds},
                    {"bytes_sent_per_worker", run.bytes_per_worker},
                    {"rounds", run.rounds},
                    {"exposed_communication_share", run.exposed_share},
                    {"lost_share", run.lost_share},
                    {"bottleneck",
                     {{"text", bottleneck(run.shares)},
                      {"computing", run.shares.computing},
                      {"communication", run.shares.communication},
                      {"waiting", run.shares.waiting},
                      {"slowest", run.shares.slowest}}}});
  return {{"target", {{"of", target.measure.name}, {"value", target.value}}}, {"rows", std::move(rows)}};
}

}  // namespace ranvier::cli
