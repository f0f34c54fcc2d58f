#include "ranvier/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "base/edits.h"

namespace ranvier {
namespace {

// A number and the unit behind it; none where there is no finite number that is at least 0.
std::optional<std::pair<double, std::string_view>> split_unit(std::string_view text) {
  double number = 0;
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc{} || !std::isfinite(number) || number < 0) return std::nullopt;
  return std::pair{number, text.substr(static_cast<std::size_t>(rest - text.data()))};
}

std::string in_small_letters(std::string_view word) {
  std::string small(word);
  for (char& letter : small)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return small;
}

}  // namespace

// By rows of the table, of which the last two are kept ("optimal string alignment").
std::size_t edits(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1), before(row), before_that(row);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= from.size(); ++i) {
    before_that.swap(before);
    before.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, before[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        row[j] = std::min(row[j], before_that[j - 2] + 1);
    }
  }
  return row.back();
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_edits = word.size() / 2 + 1;
  const std::string small = in_small_letters(word);
  for (const auto candidate : candidates) {
    const std::size_t distance = edits(small, in_small_letters(candidate));
    if (distance < best_edits) {
      best = candidate;
      best_edits = distance;
    }
  }
  return best;
}

std::string unknown_name(std::string_view kind, std::string_view word, std::span<const std::string_view> candidates) {
  // As of an option, where a spec has "local:16".
  const std::size_t equals = std::min(word.find('='), word.size());
  if (equals < word.size() && std::ranges::find(candidates, word.substr(0, equals)) != candidates.end())
    return fmt::format("unknown {} '{}'; write '{}:{}'", kind, word, word.substr(0, equals), word.substr(equals + 1));
  const auto near = nearest(word.substr(0, equals), candidates);
  return fmt::format("unknown {} '{}'{} One of: {}", kind, word,
                     near.empty() ? "." : fmt::format("; did you mean '{}'?", near), fmt::join(candidates, ", "));
}

std::optional<std::size_t> parse_bytes(std::string_view text) {
  const auto parts = split_unit(text);
  if (!parts) return std::nullopt;
  auto [number, unit] = *parts;
  if (unit.ends_with("iB"))
    unit.remove_suffix(2);
  else if (unit.ends_with('B'))
    unit.remove_suffix(1);
  constexpr std::pair<std::string_view, double> scales[] = {
      {"", 1.0}, {"K", 0x1p10}, {"k", 0x1p10}, {"M", 0x1p20}, {"G", 0x1p30}};
  for (const auto& [name, scale] : scales) {
    const double bytes = number * scale;
    if (unit == name && bytes < 0x1p62 && bytes == std::floor(bytes)) return static_cast<std::size_t>(bytes);
  }
  return std::nullopt;
}

std::optional<double> parse_rate(std::string_view text) {
  if (text.ends_with("/s")) text.remove_suffix(2);
  const auto parts = split_unit(text);
  if (!parts || parts->first <= 0) return std::nullopt;
  constexpr std::pair<std::string_view, double> scales[] = {
      {"bit", 0.125}, {"kbit", 125.0}, {"Kbit", 125.0}, {"Mbit", 125e3}, {"Gbit", 125e6},
      {"bps", 0.125}, {"kbps", 125},   {"Kbps", 125},   {"Mbps", 125e3}, {"Gbps", 125e6},
      {"B", 1.0},     {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9}};
  for (const auto& [name, scale] : scales)
    if (parts->second == name) return parts->first * scale;
  return std::nullopt;
}

std::optional<PortRange> parse_ports(std::string_view text) {
  const std::size_t dash = text.find('-');
  const auto first = parse_number<std::uint16_t>(text.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_number<std::uint16_t>(text.substr(dash + 1));
  if (!first || !last || *first == 0 || *last < *first) return std::nullopt;
  return PortRange{.first = *first, .last = *last};
}

std::string human_bytes(double bytes) {
  constexpr std::string_view units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  const int decimals = bytes == std::floor(bytes) || bytes >= 100 ? 0 : 1;
  return fmt::format("{:.{}f} {}", bytes, decimals, units[unit]);
}

}  // namespace ranvier
