#include "report/trained_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "plan/import/text_file.h"
#include "ranvier/error.h"

namespace ranvier::cli {
namespace {

using nlohmann::json;

// Files and limits of one run, and what another setting says already.
constexpr std::array<std::string_view, 5> own_settings{"save", "target_accuracy", "target_loss", "evaluate_every",
                                                       "link_bytes_per_second"};

[[noreturn]] void refuse_run(const std::string& file, const std::string& why) {
  throw Error(
      ErrorKind::config,
      fmt::format("{} is not what `ranvier train --json` writes: {}; give the files of finished runs", file, why));
}

// A value of the file, which refuses to be anything else than what is asked of it.
class Written {
 public:
  // `name`: by which the file has it; empty for all of it.
  Written(const json& value, const std::string& file, std::string name = {})
      : value_(value), file_(file), name_(std::move(name)) {}

  Written at(const char* key) const {
    if (const auto found = find(key)) return *found;
    refuse_run(file_, fmt::format("{} has no '{}'", shown(), key));
  }
  // None also where it is null, as the loss of a run that diverged.
  std::optional<Written> find(const char* key) const {
    const auto found = object().find(key);
    if (found == object().end() || found->second.is_null()) return std::nullopt;
    return Written(found->second, file_, name_.empty() ? key : fmt::format("{}.{}", name_, key));
  }
  const json::object_t& object() const {
    if (!value_.is_object()) refuse_run(file_, fmt::format("{} is no object", shown()));
    return value_.get_ref<const json::object_t&>();
  }
  std::vector<Written> list() const {
    if (!value_.is_array()) refuse_run(file_, fmt::format("{} is no list", shown()));
    std::vector<Written> all;
    for (const json& each : value_) all.emplace_back(each, file_, fmt::format("{}[{}]", name_, all.size()));
    return all;
  }
  double number() const {
    if (!value_.is_number()) refuse_run(file_, fmt::format("{} is no number", shown()));
    return value_.get<double>();
  }
  template <class Number>
  Number whole_number() const {
    const bool fits = value_.is_number_unsigned()
                          ? std::in_range<Number>(value_.get<std::uint64_t>())
                          : value_.is_number_integer() && std::in_range<Number>(value_.get<std::int64_t>());
    if (!fits)
      refuse_run(file_, fmt::format("{} is no whole number from {} to {}", shown(), std::numeric_limits<Number>::min(),
                                    std::numeric_limits<Number>::max()));
    return value_.get<Number>();
  }

 private:
  std::string shown() const { return name_.empty() ? "it" : fmt::format("'{}'", name_); }

  const json& value_;
  const std::string& file_;
  std::string name_;
};

std::optional<double> number_or_none(const Written& object, const char* key) {
  const auto found = object.find(key);
  return found ? std::optional(found->number()) : std::nullopt;
}

// What is deeper is not written: that would take a stack as deep.
bool is_flat(const json& value) {
  return value.is_primitive() ||
         std::all_of(value.begin(), value.end(), [](const json& each) { return each.is_primitive(); });
}

std::map<std::string, std::string> settings_of(const Written& written, const std::string& file) {
  std::map<std::string, std::string> settings;
  for (const auto& [name, value] : written.object()) {
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

StepShares shares_of(const Written& root, double exposed_share) {
  std::vector<int> groups;
  if (const auto written = root.find("groups"))
    for (const Written& each : written->list()) groups.push_back(each.whole_number<int>());
  if (const auto by_rank = root.find("exposed_communication_by_rank")) {
    std::vector<double> exposed;
    for (const Written& each : by_rank->list()) exposed.push_back(each.number());
    return step_shares(exposed, groups);
  }
  return step_shares(std::vector<double>{exposed_share}, groups.empty() ? groups : std::vector<int>{0});
}

TrainedRun run_of(const Written& root, const std::string& file) {
  TrainedRun run{.file = file,
                 .settings = settings_of(root.at("settings"), file),
                 .bytes_per_worker = root.at("bytes_sent_per_worker").number(),
                 .exposed_share = root.at("exposed_communication_share").number(),
                 .lost_share = number_or_none(root, "lost_share").value_or(0)};
  for (const char* where : {"inside", "between"}) run.rounds += root.at("rounds").at(where).number();
  for (const Written& each : root.at("history").list())
    run.history.push_back({.step = each.at("step").whole_number<std::size_t>(),
                           .seconds = each.at("seconds").number(),
                           .test = {.accuracy = number_or_none(each, "accuracy"),
                                    .loss = number_or_none(each, "test_loss"),
                                    .frechet_distance = number_or_none(each, "frechet_distance")}});
  if (run.history.empty()) throw Error(ErrorKind::config, fmt::format("{} holds no evaluation", file));
  // Its own are of the part since --resume, and those of evaluations from the very start.
  run.seconds = std::max(root.at("seconds").number(), run.history.back().seconds);
  run.shares = shares_of(root, run.exposed_share);
  return run;
}

}  // namespace

TrainedRun read_run(const std::filesystem::path& file) {
  const std::string text = plan::read_text(file), name = file.string();
  const json root = [&] {
    try {
      return json::parse(text);
    } catch (const json::out_of_range&) {
      refuse_run(name, "a number in it is too large");
    } catch (const json::exception&) {
      refuse_run(name, "it is no JSON");
    }
  }();
  return run_of({root, name}, name);
}

}  // namespace ranvier::cli
