// Small text work that every message and flag shares: nearest names, numbers, sizes and rates with their units.
#pragma once

#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "ranvier/types.h"

namespace ranvier {

// The candidate that takes the fewest edits to reach from `word`, in any case; empty if more than half would change.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

// "unknown transport 'tpc'; did you mean 'tcp'? One of: tcp, shm, auto": the sentence that every wrong name gets.
std::string unknown_name(std::string_view kind, std::string_view word, std::span<const std::string_view> candidates);

// The whole of `text` as one finite number; none if it is anything else, or does not fit.
template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>)
    if (!std::isfinite(number)) return std::nullopt;
  return number;
}

// "64", "4K", "16M", "1G" (powers of 1024, an optional B or iB behind) -> bytes.
std::optional<std::size_t> parse_bytes(std::string_view);
// "200Mbit", "1Gbps", "100kbit/s", "25MB" (per second, powers of 1000) -> bytes per second.
std::optional<double> parse_rate(std::string_view);
// "20000-20100", or one port -> the range.
std::optional<PortRange> parse_ports(std::string_view);
// 1536 -> "1.5 KiB".
std::string human_bytes(double bytes);

}  // namespace ranvier
