// A TOML file whose every mistake gets a sentence with line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include <toml++/toml.h>

namespace ranvier::plan {

class TomlFile {
 public:
  // Throws Error{config} where the file cannot be read or is no TOML, as all members do.
  explicit TomlFile(const std::filesystem::path&);

  const toml::table& root() const { return root_; }
  [[noreturn]] void refuse(const toml::source_region&, const std::string& what) const;

  // An unknown key is an error that names the nearest of `known`; `what` is what the table stands for: "a layer".
  void allow_keys(const toml::table&, std::string_view what, std::initializer_list<std::string_view> known) const;
  const toml::node& need(const toml::table&, std::string_view key, std::string_view what) const;
  const toml::table& table(const toml::node&, std::string_view what) const;
  // The array behind `key`, empty where there is none.
  const toml::array& list(const toml::table&, std::string_view key) const;

  std::string text(const toml::node&) const;
  std::string text(const toml::table&, std::string_view key, std::string_view otherwise) const;
  // One that parse_transport takes.
  std::string transport(const toml::table&, std::string_view otherwise) const;
  // From 0 to `most`. Numbers beyond it are of no network and no program, and of no use in sums either.
  static constexpr double most_amount = 1e18;
  double amount(const toml::node&, double most = most_amount) const;
  // Gbit/s of a link, from 1e-6 to 1e6.
  double rate(const toml::node&) const;
  // Of a link, up to a second.
  double latency_us(const toml::node&) const;
  double amount(const toml::table&, std::string_view key, double otherwise) const;
  std::int64_t whole(const toml::node&, std::int64_t least, std::int64_t most) const;

 private:
  std::string file_;
  toml::table root_;
};

// "text" with what TOML wants escaped.
std::string in_quotes(std::string_view text);

}  // namespace ranvier::plan
