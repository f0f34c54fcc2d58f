#include "plan/import/json_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/import/text_file.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::plan {
namespace {

// Whether a text is JSON; if not, where it ends being so.
class Check final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }

  bool parse_error(std::size_t position, const std::string& last_token, const json::exception& problem) override {
    // The only other error of parsing; it is noticed behind the number.
    if (dynamic_cast<const json::out_of_range*>(&problem) != nullptr) {
      offset = position - std::min(position, last_token.size());
      what = fmt::format("the number {} is too large", quotable(last_token));
    } else {
      offset = position > 0 ? position - 1 : 0;
      what = "this is no JSON";
    }
    return false;
  }

  std::size_t offset = 0;
  std::string what = {};
};

// On one line, whatever letters are in it.
std::string written(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

// What is deep is not written: that would take a stack as deep.
std::string described(const json& value) {
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return "an object";
  return quotable(written(value));
}

}  // namespace

JsonFile::JsonFile(const std::filesystem::path& path) : file_(path.string()), text_(read_text(path)) {
  Check check;
  if (!json::sax_parse(text_, &check)) refuse_at(check.offset, check.what);
  // Which the parser takes for the end, whatever stands behind it.
  if (const auto zero = text_.find('\0'); zero != std::string::npos)
    refuse_at(zero, "a byte of value 0 stands here, and the file goes on; it is no text, so save it anew");
  if (const auto key = repeated_key(text_))
    refuse_at(*key, "this key stands in the same object before; leave out one of them");
  root_ = json::parse(text_);
}

void JsonFile::refuse_at(std::size_t offset, const std::string& sentence) const {
  const auto [line, column] = place_of(text_, offset);
  throw Error(ErrorKind::config, fmt::format("{}, line {}, column {}: {}", file_, line, column, sentence));
}

std::string JsonFile::name_of(const json::json_pointer& where) const {
  if (where.empty()) return "the file";
  const json::json_pointer parent = where.parent_pointer();
  const std::string before = parent.empty() ? "" : name_of(parent);
  if (root_.contains(parent) && root_[parent].is_array()) return fmt::format("{}[{}]", before, where.back());
  return before.empty() ? where.back() : fmt::format("{}.{}", before, where.back());
}

void JsonFile::refuse(const json::json_pointer& where, const std::string& expected) const {
  json::json_pointer there = where;
  while (!root_.contains(there)) there.pop_back();
  const std::string wrong = there == where ? fmt::format("is {}", described(root_[where])) : std::string("is missing");
  refuse_at(place_in_json(text_, there), fmt::format("{} {}; expected {}", name_of(where), wrong, expected));
}

void JsonFile::allow_keys(const json::json_pointer& object, std::initializer_list<std::string_view> known) const {
  const std::vector<std::string_view> names(known);
  if (!root_[object].is_object()) refuse(object, fmt::format("an object with {}", fmt::join(names, " and ")));
  for (const auto& [key, value] : root_[object].items()) {
    if (std::ranges::find(names, key) != names.end()) continue;
    const std::string quoted = written(key);
    refuse_at(
        place_in_json(text_, object / key, true),
        unknown_name(fmt::format("key of {}", name_of(object)), quotable(quoted.substr(1, quoted.size() - 2)), names));
  }
}

const json& JsonFile::need(const json::json_pointer& where, const std::string& expected) const {
  if (!root_.contains(where)) refuse(where, expected);
  return root_[where];
}

double JsonFile::amount(const json::json_pointer& where, const std::string& expected) const {
  const json& value = need(where, expected);
  if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= most_amount)) refuse(where, expected);
  return value.get<double>();
}

double JsonFile::amount(const json::json_pointer& where, const std::string& expected, double otherwise) const {
  return root_.contains(where) ? amount(where, expected) : otherwise;
}

}  // namespace ranvier::plan
