// Everything that could serve a collective: what "auto" chooses from and `ranvier bench --tune` times.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ranvier/schedule.h"

namespace ranvier {
namespace {

// Two dimensions, or nodes, of every size that divides the world. More dimensions are for networks that have them, and
// whoever has one names them. A node of all ranks, or of one, is no hierarchy.
std::vector<std::vector<Rank>> dims_for(Dims kind, Rank world) {
  if (kind == Dims::none || kind == Dims::periodic_grid) return {{}};
  std::vector<std::vector<Rank>> all;
  for (Rank divisor = 2; divisor < world; ++divisor) {
    if (world % divisor != 0) continue;
    if (kind == Dims::node)
      all.push_back({divisor});
    else
      all.push_back({divisor, world / divisor});
  }
  return all;
}

}  // namespace

std::string spec_text(const AlgorithmSpec& spec) {
  std::string text(spec.algorithm().name);
  if (!spec.dims.empty()) text += fmt::format(":{}", fmt::join(spec.dims, "x"));
  if (!spec.periodic.empty()) {
    text += ",periods=";
    for (std::size_t i = 0; i < spec.periodic.size(); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : "x", spec.periodic[i] ? 1 : 0);
  }
  return text;
}

std::vector<AlgorithmSpec> candidates(Collective collective, Rank world) {
  std::vector<AlgorithmSpec> all;
  for (std::size_t index = 0; index < algorithms().size(); ++index) {
    const Algorithm& algorithm = algorithms()[index];
    if (std::ranges::count(algorithm.collectives, collective) == 0) continue;
    for (const auto& dims : dims_for(algorithm.dims, world)) all.push_back({.index = index, .dims = dims});
  }
  return all;
}

}  // namespace ranvier
