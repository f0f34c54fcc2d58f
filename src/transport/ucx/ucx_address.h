// What a rank publishes of its UCP worker: the host in front, for counting who shares its cores, as a length and the
// name, and UCX's own bytes, which may be any.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace ranvier::transport {

struct UcxAddress {
  std::string host;
  std::string worker;

  static constexpr std::string_view greeting = "ucx-1 ";

  std::string text() const { return fmt::format("{}{}:{}{}", greeting, host.size(), host, worker); }
  static std::optional<UcxAddress> parse(std::string_view text) {
    if (!text.starts_with(greeting)) return std::nullopt;
    text.remove_prefix(greeting.size());
    std::size_t length = 0;
    const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), length);
    text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
    if (problem != std::errc{} || !text.starts_with(':') || length >= text.size() - 1) return std::nullopt;
    text.remove_prefix(1);
    return UcxAddress{std::string(text.substr(0, length)), std::string(text.substr(length))};
  }
};

}  // namespace ranvier::transport
