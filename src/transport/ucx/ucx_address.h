// What a rank publishes of its UCP worker: in front what tells who shares its cores, which these are and the host, as a
// length and the name; then UCX's own bytes, which may be any.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "base/cpu_set.h"

namespace ranvier::transport {

struct UcxAddress {
  CpuSet cpus = {};  // on which it may run
  std::string host;
  std::string worker;

  static constexpr std::string_view greeting = "ucx-2 ";

  std::string text() const { return fmt::format("{}{} {}:{}{}", greeting, cpus.text(), host.size(), host, worker); }
  static std::optional<UcxAddress> parse(std::string_view text) {
    if (!text.starts_with(greeting)) return std::nullopt;
    text.remove_prefix(greeting.size());
    const auto cpus = CpuSet::parse(text.substr(0, text.find(' ')));
    if (!cpus) return std::nullopt;
    text.remove_prefix(std::min(text.find(' '), text.size() - 1) + 1);
    std::size_t length = 0;
    const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), length);
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
    if (problem != std::errc{} || !text.starts_with(':') || length >= text.size() - 1) return std::nullopt;
    text.remove_prefix(1);
    return UcxAddress{*cpus, std::string(text.substr(0, length)), std::string(text.substr(length))};
  }
};

}  // namespace ranvier::transport
