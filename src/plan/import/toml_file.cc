#include "plan/import/toml_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "plan/import/text_file.h"
#include "ranvier/error.h"
#include "ranvier/text.h"
#include "ranvier/transport.h"

namespace ranvier::plan {

TomlFile::TomlFile(const std::filesystem::path& path) : file_(path.string()) {
  const std::string text = read_text(path);
  try {
    root_ = toml::parse(text);
  } catch (const toml::parse_error& problem) {
    refuse(problem.source(), std::string(problem.description()));
  }
}

void TomlFile::refuse(const toml::source_region& where, const std::string& what) const {
  throw Error(ErrorKind::config, fmt::format("{}, line {}, column {}: {}", file_, std::max(1U, where.begin.line),
                                             std::max(1U, where.begin.column), what));
}

void TomlFile::allow_keys(const toml::table& table, std::string_view what,
                          std::initializer_list<std::string_view> known) const {
  const std::vector<std::string_view> names(known);
  for (const auto& [key, value] : table)
    if (std::find(names.begin(), names.end(), key.str()) == names.end())
      refuse(key.source(), unknown_name(fmt::format("key of {}", what), key.str(), names));
}

const toml::node& TomlFile::need(const toml::table& table, std::string_view key, std::string_view what) const {
  const auto* node = table.get(key);
  if (node == nullptr) refuse(table.source(), fmt::format("the key {} is missing in {}", key, what));
  return *node;
}

const toml::table& TomlFile::table(const toml::node& node, std::string_view what) const {
  const auto* found = node.as_table();
  if (found == nullptr) refuse(node.source(), fmt::format("{} is a table, and here is none", what));
  return *found;
}

const toml::array& TomlFile::list(const toml::table& table, std::string_view key) const {
  static const toml::array none;
  const auto* node = table.get(key);
  if (node == nullptr) return none;
  if (!node->is_array()) refuse(node->source(), fmt::format("{} is a list, and here is none", key));
  return *node->as_array();
}

std::string TomlFile::text(const toml::node& node) const {
  const auto found = node.value_exact<std::string>();
  if (!found) refuse(node.source(), "a text in quotes is expected here");
  return *found;
}

std::string TomlFile::text(const toml::table& table, std::string_view key, std::string_view otherwise) const {
  const auto* node = table.get(key);
  return node == nullptr ? std::string(otherwise) : text(*node);
}

std::string TomlFile::transport(const toml::table& table, std::string_view otherwise) const {
  const auto* node = table.get("transport");
  if (node == nullptr) return std::string(otherwise);
  std::string name = text(*node);
  try {
    parse_transport(name);
  } catch (const Error& error) {
    refuse(node->source(), error.what());
  }
  return name;
}

double TomlFile::amount(const toml::node& node, double most) const {
  const auto number = node.value<double>();
  if (number && std::isfinite(*number) && *number > most)
    refuse(node.source(), fmt::format("a number from 0 to {:g} is expected here", most));
  if (!number || !std::isfinite(*number) || *number < 0)
    refuse(node.source(), "a number that is at least 0 is expected here");
  return *number;
}

double TomlFile::rate(const toml::node& node) const {
  constexpr double least = 1e-6, most = 1e6;
  const auto number = node.value<double>();
  if (!number || !(*number >= least && *number <= most))
    refuse(node.source(), fmt::format("a number of Gbit/s from {:g} to {:g} is expected here", least, most));
  return *number;
}

double TomlFile::latency_us(const toml::node& node) const {
  constexpr double second = 1e6;
  return amount(node, second);
}

double TomlFile::amount(const toml::table& table, std::string_view key, double otherwise) const {
  const auto* node = table.get(key);
  return node == nullptr ? otherwise : amount(*node);
}

std::int64_t TomlFile::whole(const toml::node& node, std::int64_t least, std::int64_t most) const {
  const auto number = node.value_exact<std::int64_t>();
  if (!number || *number < least || *number > most)
    refuse(node.source(), fmt::format("a whole number from {} to {} is expected here", least, most));
  return *number;
}

std::string in_quotes(std::string_view text) {
  try {
    nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    throw Error(ErrorKind::config,
                fmt::format("{} is no text in UTF-8, which files in TOML are of; give the file another name",
                            nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
  }
  std::string result = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') result += '\\';
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f)
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(letter));
    else
      result += letter;
  }
  return result + '"';
}

}  // namespace ranvier::plan
