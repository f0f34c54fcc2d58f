#include "report/trained_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "plan/import/text_file.h"
#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

using nlohmann::json;

// Files and limits of one run, and what another setting says already.
constexpr std::array<std::string_view, 5> own_settings{"save", "target_accuracy", "target_loss", "evaluate_every",
                                                       "link_bytes_per_second"};

std::optional<double> number_or_none(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  return found->get<double>();
}

// What is deeper is not written: that would take a stack as deep.
bool is_flat(const json& value) {
  return value.is_primitive() ||
         std::all_of(value.begin(), value.end(), [](const json& each) { return each.is_primitive(); });
}

std::map<std::string, std::string> settings_of(const json& written, const std::string& file) {
  std::map<std::string, std::string> settings;
  for (const auto& [name, value] : written.get_ref<const json::object_t&>()) {
    if (std::find(own_settings.begin(), own_settings.end(), name) != own_settings.end()) continue;
    if (!is_flat(value))
      throw Error(ErrorKind::config, fmt::format("{}: setting '{}' is neither a value nor a list of values; give what "
                                                 "`ranvier train --json` writes",
                                                 file, plan::quotable(name)));
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    if (!text.empty() && !value.is_null() && text != "[]") settings[name] = text;
  }
  return settings;
}

StepShares shares_of(const json& root, double exposed_share) {
  const auto by_rank = root.find("exposed_communication_by_rank");
  const auto groups = root.value("groups", std::vector<int>{});
  if (by_rank != root.end()) return step_shares(by_rank->get<std::vector<double>>(), groups);
  return step_shares(std::vector<double>{exposed_share}, groups.empty() ? groups : std::vector<int>{0});
}

TrainedRun run_of(const json& root, const std::string& file) {
  TrainedRun run{.file = file,
                 .settings = settings_of(root.at("settings"), file),
                 .bytes_per_worker = root.at("bytes_sent_per_worker").get<double>(),
                 .exposed_share = root.at("exposed_communication_share").get<double>(),
                 .lost_share = root.value("lost_share", 0.0)};
  for (const char* where : {"inside", "between"}) run.rounds += root.at("rounds").at(where).get<double>();
  for (const json& each : root.at("history"))
    run.history.push_back({.step = each.at("step").get<std::size_t>(),
                           .seconds = each.at("seconds").get<double>(),
                           .test = {.accuracy = number_or_none(each, "accuracy"),
                                    .loss = number_or_none(each, "test_loss"),
                                    .frechet_distance = number_or_none(each, "frechet_distance")}});
  if (run.history.empty()) throw Error(ErrorKind::config, fmt::format("{} holds no evaluation", file));
  // Its own are of the part since --resume, and those of evaluations from the very start.
  run.seconds = std::max(root.at("seconds").get<double>(), run.history.back().seconds);
  run.shares = shares_of(root, run.exposed_share);
  return run;
}

// "[json.exception.out_of_range.403] key 'history' not found" -> "key 'history' not found"
std::string_view reason(const json::exception& problem) {
  const std::string_view words = problem.what();
  return words.substr(std::min(words.find("] ") + 2, words.size()));
}

}  // namespace

TrainedRun read_run(const std::filesystem::path& file) {
  const std::string text = plan::read_text(file);
  try {
    return run_of(json::parse(text), file.string());
  } catch (const json::exception& problem) {
    throw Error(ErrorKind::config, fmt::format("{} is not what `ranvier train --json` writes ({}); give the files of "
                                               "finished runs",
                                               file.string(), reason(problem)));
  }
}

}  // namespace ranvier::cli
