// A JSON file whose every mistake gets a sentence with line and column.
#pragma once

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace ranvier::plan {

using nlohmann::json;

class JsonFile {
 public:
  // Products of some of them are numbers still.
  static constexpr double most_amount = 1e24;

  // Throws Error{config} where the file cannot be read or is no JSON, as all members do.
  explicit JsonFile(const std::filesystem::path&);

  const json& root() const { return root_; }
  // `where` as a sentence names it: "terms[2].bytes"; "the file" at the root.
  std::string name_of(const json::json_pointer& where) const;
  // "traffic.json, line 3, column 14: terms[2].weight is -1; expected a number". Of a missing value its nearest
  // parent's place.
  [[noreturn]] void refuse(const json::json_pointer& where, const std::string& expected) const;

  // An object with no other keys than those; an unknown one is an error that names the nearest.
  void allow_keys(const json::json_pointer& object, std::initializer_list<std::string_view> known) const;
  const json& need(const json::json_pointer& where, const std::string& expected) const;
  double amount(const json::json_pointer& where, const std::string& expected) const;  // from 0 to most_amount
  double amount(const json::json_pointer& where, const std::string& expected, double otherwise) const;

 private:
  [[noreturn]] void refuse_at(std::size_t offset, const std::string& sentence) const;

  std::string file_;
  std::string text_;
  json root_;
};

// Where the value of `where` begins in `text`, which is JSON without repeated keys and has it; with `of_key` its key.
std::size_t place_in_json(std::string_view text, const json::json_pointer& where, bool of_key = false);

// Where the first key begins that stands in the same object of `text`, which is JSON, before: parsers take the last one
// in silence.
std::optional<std::size_t> repeated_key(std::string_view text);

}  // namespace ranvier::plan
