#include "base/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/split.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

[[noreturn]] void refuse(std::string_view spec, std::string_view problem) {
  throw Error(ErrorKind::usage,
              fmt::format("the spec '{}' {}; write it as name:value,key=value with '+' between stages", spec, problem));
}

void parse_argument(std::string_view spec, std::string_view argument, bool first, StageSpec& stage) {
  const auto equals = argument.find('=');
  if (equals == std::string_view::npos) {
    if (argument.empty()) refuse(spec, fmt::format("has an empty value in stage '{}'", stage.name));
    if (!first) refuse(spec, fmt::format("has '{}' where a key=value is due", argument));
    stage.value = argument;
    return;
  }
  const auto key = argument.substr(0, equals);
  const auto value = argument.substr(equals + 1);
  if (key.empty() || value.empty()) refuse(spec, fmt::format("has an incomplete setting '{}'", argument));
  if (std::ranges::any_of(stage.settings, [&](const auto& setting) { return setting.first == key; }))
    refuse(spec, fmt::format("sets '{}' twice in one stage", key));
  stage.settings.emplace_back(key, value);
}

StageSpec parse_stage(std::string_view spec, std::string_view text) {
  const auto colon = text.find(':');
  StageSpec stage{.name = text.substr(0, colon), .value = {}, .settings = {}};
  if (stage.name.empty()) refuse(spec, "has a stage without a name");
  if (const auto comma = stage.name.find(','); comma != std::string_view::npos && colon == std::string_view::npos) {
    std::string meant(text);
    meant[comma] = ':';
    parse_stage(spec, meant);  // which may be wrong in itself
    throw Error(ErrorKind::usage, fmt::format("the spec '{}' has a ',' where settings begin; write '{}'", spec, meant));
  }
  if (colon == std::string_view::npos) return stage;
  bool first = true;
  for (const auto argument : split(text.substr(colon + 1), ','))
    parse_argument(spec, argument, std::exchange(first, false), stage);
  return stage;
}

}  // namespace

std::vector<StageSpec> parse_spec(std::string_view spec) {
  std::vector<StageSpec> stages;
  for (const auto text : split(spec, '+')) stages.push_back(parse_stage(spec, text));
  return stages;
}

}  // namespace ranvier
