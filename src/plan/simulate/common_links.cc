#include "plan/simulate/common_links.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "plan/simulate/shifts.h"

namespace ranvier::plan {
namespace {

// By link of the network.
std::vector<std::uint32_t> places_of(const std::optional<Shifts>& fold, const Topology& topology) {
  if (fold) return link_kinds(Group(*fold), topology);
  std::vector<std::uint32_t> places(topology.links.size());
  std::iota(places.begin(), places.end(), 0);
  return places;
}

// Of smaller worlds links of the first ranks are there, and of what is sent elsewhere none.
double busy(const SimulatedRun& run, std::size_t place) {
  return place < run.links.size() ? run.links[place].utilisation : 0;
}

}  // namespace

std::vector<CommonLinks::Link> link_by_link(const std::vector<const SimulatedRun*>& runs) {
  std::vector<CommonLinks::Link> result;
  for (const SimulatedRun* run : runs)
    for (std::size_t i = result.size(); i < run->links.size(); ++i)
      result.push_back({run->links[i].from, run->links[i].to, run->links[i].dimension, {}});
  for (std::size_t i = 0; i < result.size(); ++i)
    for (const SimulatedRun* run : runs) result[i].busy.push_back(busy(*run, i));
  return result;
}

std::vector<CommonLinks::Link> CommonLinks::of(const std::vector<const SimulatedRun*>& runs) {
  std::set<Fold> folds;
  for (const SimulatedRun* run : runs)
    if (!run->links.empty()) folds.insert(run->folded_by);
  if (folds.size() < 2) return link_by_link(runs);
  std::vector<std::size_t> fold_of;  // by run
  for (const SimulatedRun* run : runs)
    fold_of.push_back(
        run->links.empty() ? 0 : static_cast<std::size_t>(std::distance(folds.begin(), folds.find(run->folded_by))));
  std::vector<Link> result;
  for (const Kind& kind : kinds(folds)) {
    Link& link = result.emplace_back(kind.from, kind.to, kind.dimension);
    for (std::size_t i = 0; i < runs.size(); ++i) link.busy.push_back(busy(*runs[i], kind.places[fold_of[i]]));
  }
  return result;
}

const std::vector<CommonLinks::Kind>& CommonLinks::kinds(const std::set<Fold>& folds) {
  const auto [known, added] = known_.try_emplace(folds);
  if (!added) return known->second;
  std::vector<std::vector<std::uint32_t>> places;  // by fold, then link
  for (const Fold& fold : folds) places.push_back(places_of(fold, topology_));
  std::set<std::vector<std::uint32_t>> told_apart;
  for (LinkNumber number = 0; number < topology_.links.size(); ++number) {
    std::vector<std::uint32_t> here;
    for (const auto& each : places) here.push_back(each[number]);
    if (!told_apart.insert(here).second) continue;
    const auto& link = topology_.links[number];
    known->second.push_back(
        {std::move(here), vertex_name(topology_, link.from), vertex_name(topology_, link.to), link.dimension});
  }
  return known->second;
}

}  // namespace ranvier::plan
