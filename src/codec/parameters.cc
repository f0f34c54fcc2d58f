#include "codec/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "codec/stages.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier {

std::string Parameters::words(std::string_view key) const {
  return key.empty() ? fmt::format("the value of '{}'", stage_.name)
                     : fmt::format("'{}' of the stage '{}'", key, stage_.name);
}

std::string_view Parameters::find(std::string_view key) {
  known_.push_back(key);
  if (key.empty()) return stage_.value;
  for (const auto& [name, value] : stage_.settings)
    if (name == key) return value;
  return {};
}

bool Parameters::has(std::string_view key) const {
  return key.empty() ? !stage_.value.empty()
                     : std::ranges::any_of(stage_.settings, [&](const auto& setting) { return setting.first == key; });
}

double Parameters::number(std::string_view key, double otherwise, double least, double most) {
  const std::string_view text = find(key);
  if (text.empty()) return otherwise;
  const auto number = parse_number<double>(text);
  if (!number || *number < least || *number > most)
    throw Error(ErrorKind::usage,
                fmt::format("{} is '{}'; give a number from {} to {}", words(key), text, least, most));
  return *number;
}

std::optional<double> Parameters::optional_number(std::string_view key, double least, double most) {
  const double given = number(key, least, least, most);
  return has(key) ? std::optional(given) : std::nullopt;
}

std::size_t Parameters::count(std::string_view key, std::size_t otherwise, std::size_t least, std::size_t most) {
  const double value =
      number(key, static_cast<double>(otherwise), static_cast<double>(least), static_cast<double>(most));
  if (value != std::floor(value))
    throw Error(ErrorKind::usage,
                fmt::format("{} is {}; give a whole number from {} to {}", words(key), value, least, most));
  return static_cast<std::size_t>(value);
}

std::size_t Parameters::block(std::size_t otherwise, std::string_view key) {
  return block(otherwise, key, chunk_values);
}

std::size_t Parameters::block(std::size_t otherwise, std::string_view key, std::size_t most) {
  const std::string_view text = find(key);
  if (text.empty()) return otherwise;
  const auto block = parse_number<std::size_t>(text);
  if (!block || *block < 8 || *block > most || !std::has_single_bit(*block))
    throw Error(ErrorKind::usage, fmt::format("{} is '{}'; give a power of two from 8 to {}", words(key), text, most));
  return *block;
}

std::string Parameters::choice(std::string_view key, std::string_view otherwise,
                               std::span<const std::string_view> choices) {
  const std::string_view text = find(key);
  if (text.empty()) return std::string(otherwise);
  if (std::ranges::find(choices, text) == choices.end()) {
    const auto near = nearest(text, choices);
    throw Error(ErrorKind::usage,
                fmt::format("{} is '{}'; give one of {}{}", words(key), text, fmt::join(choices, ", "),
                            near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
  }
  return std::string(text);
}

void Parameters::end() const {
  if (!stage_.value.empty() && std::ranges::find(known_, "") == known_.end())
    throw Error(ErrorKind::usage,
                fmt::format("the stage '{}' takes no value; write it without ':{}'", stage_.name, stage_.value));
  std::vector<std::string_view> keys;
  std::ranges::copy_if(known_, std::back_inserter(keys), [](std::string_view key) { return !key.empty(); });
  for (const auto& [key, value] : stage_.settings) {
    if (keys.empty())
      throw Error(ErrorKind::usage,
                  fmt::format("the stage '{}' takes no setting of its own; leave '{}' out", stage_.name, key));
    if (std::ranges::find(keys, key) == keys.end())
      throw Error(ErrorKind::usage, unknown_name(fmt::format("setting of the stage '{}'", stage_.name), key, keys));
  }
}

}  // namespace ranvier
