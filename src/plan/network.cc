// Shapes of networks: their strings, their cost, and what collectives send in each of their dimensions.
#include "ranvier/network.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "plan/import/text_file.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr std::int64_t most_npus = std::int64_t{1} << 31;

constexpr std::array<std::pair<std::string_view, Block>, 3> block_names{
    std::pair{"RI", Block::ring}, std::pair{"FC", Block::fully_connected}, std::pair{"SW", Block::switched}};

std::string_view name_of(Block block) {
  for (const auto& [name, value] : block_names)
    if (value == block) return name;
  return "?";
}

[[noreturn]] void refuse(std::string_view text, std::size_t at, std::string_view what) {
  throw Error(ErrorKind::usage,
              fmt::format("network '{}', column {}: {}; write dimensions as in RI(4)_FC(8)_SW(32): RI is a ring, FC "
                          "fully connected, SW a switch",
                          plan::quotable(text, plan::most_letters_of_a_flag), at + 1, what));
}

}  // namespace

std::int64_t NetworkShape::npus() const {
  std::int64_t product = 1;
  for (const auto& dimension : dimensions) product *= dimension.size;
  return product;
}

NetworkShape parse_network(std::string_view text) {
  NetworkShape shape;
  std::int64_t npus = 1;
  for (std::size_t at = 0;;) {
    const auto name = text.substr(at, 2);
    const auto block = std::find_if(block_names.begin(), block_names.end(),
                                    [&](const auto& candidate) { return candidate.first == name; });
    if (block == block_names.end())
      refuse(text, at, name.empty() ? std::string("a dimension is missing") : fmt::format("'{}' is no kind", name));
    at += 2;
    if (text.substr(at, 1) != "(") refuse(text, at, "'(' and the size of the dimension are missing");
    ++at;
    int size = 0;
    const auto [end, problem] = std::from_chars(text.data() + at, text.data() + text.size(), size);
    if (problem != std::errc{} || size < 2) refuse(text, at, "a size is a whole number from 2");
    npus *= size;
    if (npus > most_npus) refuse(text, at, fmt::format("more than {} NPUs", most_npus));
    at = static_cast<std::size_t>(end - text.data());
    if (text.substr(at, 1) != ")") refuse(text, at, "')' is missing");
    ++at;
    shape.dimensions.push_back({.block = block->second, .size = size});
    if (at == text.size()) break;
    if (text[at] != '_') refuse(text, at, "'_' is missing between two dimensions");
    ++at;
  }
  if (shape.dimensions.size() > 16) refuse(text, 0, "more than 16 dimensions");
  for (std::size_t i = 0; i < shape.dimensions.size(); ++i) {
    const std::size_t from_outside = shape.dimensions.size() - 1 - i;
    shape.dimensions[i].tier = static_cast<Tier>(std::max<int>(0, tier_count - 1 - static_cast<int>(from_outside)));
  }
  return shape;
}

std::string to_string(const NetworkShape& shape) {
  std::vector<std::string> words;
  words.reserve(shape.dimensions.size());
  for (const auto& dimension : shape.dimensions)
    words.push_back(fmt::format("{}({})", name_of(dimension.block), dimension.size));
  return fmt::format("{}", fmt::join(words, "_"));
}

std::vector<double> unit_costs(const NetworkShape& shape, const CostTable& table) {
  std::vector<double> costs;
  for (const auto& dimension : shape.dimensions) {
    const TierCost& tier = table.tiers[static_cast<int>(dimension.tier)];
    costs.push_back(tier.link + (dimension.block == Block::switched ? tier.switching + tier.nic : 0));
  }
  return costs;
}

std::vector<double> bytes_by_dimension(Collective collective, double bytes, const GroupSizes& group) {
  std::vector<double> result(group.size(), 0);
  const auto each = [&](std::size_t i) -> bool { return group[i] > 1; };
  switch (collective) {
    case Collective::all_reduce:
    case Collective::reduce_scatter: {
      const double times = collective == Collective::all_reduce ? 2 : 1;
      for (std::size_t i = 0; i < group.size(); ++i) {
        if (!each(i)) continue;
        result[i] = times * bytes / group[i] * (group[i] - 1);
        bytes /= group[i];
      }
      break;
    }
    case Collective::all_gather:
    // The root of a gather receives, and that of a scatter sends, what everybody does in an all_gather.
    case Collective::gather:
    case Collective::scatter:
      for (std::size_t i = group.size(); i-- > 0;) {
        if (!each(i)) continue;
        result[i] = bytes * (group[i] - 1);
        bytes *= group[i];
      }
      break;
    case Collective::all_to_all:
      for (std::size_t i = 0; i < group.size(); ++i)
        if (each(i)) result[i] = bytes / group[i] * (group[i] - 1);
      break;
    case Collective::broadcast:
    case Collective::reduce:
    case Collective::neighbor_exchange:
      // From one to the next, slice after slice: each NPU passes all of it on once in each dimension.
      for (std::size_t i = 0; i < group.size(); ++i)
        if (each(i)) result[i] = bytes;
      break;
    default:
      // A pipeline's stages are neighbours in the innermost dimension that they span.
      for (std::size_t i = 0; i < group.size(); ++i) {
        if (!each(i)) continue;
        result[i] = bytes;
        break;
      }
  }
  return result;
}

}  // namespace ranvier
