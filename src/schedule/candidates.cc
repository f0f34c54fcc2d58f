// Everything that could serve a collective: what "auto" chooses from and `ranvier bench --tune` times.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ranvier/schedule.h"

namespace ranvier {
namespace {

// Three dimensions as equal as they can be, the largest one last; empty where the world has none.
std::vector<Rank> balanced_in_three(Rank world) {
  std::vector<Rank> best;
  for (Rank first = 2; first * first * first <= world; ++first) {
    if (world % first != 0) continue;
    for (Rank second = first; first * second * second <= world; ++second)
      if (const Rank third = world / first / second; world % (first * second) == 0)
        if (best.empty() || first + second + third < best[0] + best[1] + best[2]) best = {first, second, third};
  }
  return best;
}

// Two dimensions, or nodes, of every size that divides the world, and three dimensions, whose rounds are fewer, of the
// sizes that make them fewest. More divisions would be tried in vain on most networks; whoever has one names its
// dimensions. A node of all ranks, or of one, is no hierarchy.
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
  if (kind == Dims::grid)
    if (const auto dims = balanced_in_three(world); !dims.empty()) all.push_back(dims);
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
