#include <algorithm>
#include <cmath>
#include <numeric>

#include "ranvier/error.h"
#include "ranvier/sync.h"

namespace ranvier {
namespace {

using Group = std::vector<std::size_t>;  // workers, by descending speed

// Those who stand alone join the neighbour whose speed is nearer, the smaller step first.
void join_single_ones(std::vector<Group>& groups, std::span<const double> speeds) {
  const auto step = [&](std::size_t i) {  // from group i to the next
    return speeds[groups[i].back()] / speeds[groups[i + 1].front()];
  };
  for (;;) {
    std::size_t best = groups.size();
    for (std::size_t i = 0; i + 1 < groups.size(); ++i)
      if ((groups[i].size() == 1 || groups[i + 1].size() == 1) && (best == groups.size() || step(i) < step(best)))
        best = i;
    if (best == groups.size()) return;
    groups[best].insert(groups[best].end(), groups[best + 1].begin(), groups[best + 1].end());
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace

std::vector<int> group_by_speed(std::span<const double> speeds, const GroupRule& rule) {
  if (std::ranges::any_of(speeds, [](double speed) { return !(speed > 0) || !std::isfinite(speed); }))
    throw Error(ErrorKind::usage, "workers are grouped by speeds, which have to be above 0");
  Group order(speeds.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater<>{}, [&](std::size_t worker) { return speeds[worker]; });

  std::vector<Group> groups;
  for (const std::size_t worker : order) {
    if (groups.empty() || speeds[groups.back().back()] / speeds[worker] > rule.ratio) groups.emplace_back();
    groups.back().push_back(worker);
  }
  join_single_ones(groups, speeds);

  std::vector<int> numbers(speeds.size());
  int number = 0;
  for (const Group& group : groups) {
    const std::size_t parts = rule.largest > 0 ? (group.size() + rule.largest - 1) / rule.largest : 1;
    for (std::size_t i = 0; i < group.size(); ++i)
      numbers[group[i]] = number + static_cast<int>(i * parts / group.size());
    number += static_cast<int>(parts);
  }
  return numbers;
}

std::vector<Rank> slowest_first(std::span<const double> speeds) {
  std::vector<Rank> order(speeds.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](Rank one, Rank other) {
    return speeds[static_cast<std::size_t>(one)] < speeds[static_cast<std::size_t>(other)];
  });
  return order;
}

}  // namespace ranvier
