#include "engine/selection.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ranvier::engine {
namespace {

// The choice of the size before stays unless another is better by more than the model can know.
constexpr double clearly = 0.97;

constexpr std::size_t smallest = 4;
constexpr std::size_t largest = std::size_t{1} << 30;

// Up to this many ranks the links of all pairs are used at once; beyond, messages get too small and too many.
constexpr Rank most_direct = 8;

// From here on vectors in memory that ranks of a host share are better lent than copied (PeerMemory), which algorithms
// that rest on the link's buffering cannot do in place; in other memory these are no faster at such sizes. An exchange
// in place is only held by what moves every part through scratch, which costs more than lending saves.
constexpr std::size_t worth_lending = 512 << 10;

// From here on what ranks of one host send to all others at once has left the caches before it is read, while a ring
// passes on slices that were just written: an all_reduce of 1 MiB takes four ranks half of the time of "direct". The
// model counts bytes, not where they lie, so there a ring costs less than it says.
constexpr std::size_t leaves_caches = 256 << 10;
constexpr double ring_in_caches = 0.776;  // of what the model predicts

constexpr const char* for_uneven_exchange = "direct";

bool is_shared_memory(std::string_view transport) { return transport == "shm" || transport == "loopback"; }

// The algorithm of a grid has the name of the network that is one. However that is divided, it is a candidate there.
void add_own_grid(std::vector<AlgorithmSpec>& all, const Topology& topology, Collective collective) {
  if (!topology.name.starts_with("torus:") && !topology.name.starts_with("mesh:")) return;
  AlgorithmSpec own = parse_algorithm(topology.name);
  const auto is_own = [&](const AlgorithmSpec& each) { return each.index == own.index && each.dims == own.dims; };
  if (std::ranges::count(own.algorithm().collectives, collective) > 0 && std::ranges::none_of(all, is_own))
    all.push_back(std::move(own));
}

// The hosts that there are, where the last one has fewer ranks: no size of nodes that divides the world.
void add_own_nodes(std::vector<AlgorithmSpec>& all, Rank world, Rank ranks_per_node, Collective collective) {
  if (ranks_per_node <= 1 || ranks_per_node >= world || world % ranks_per_node == 0) return;
  AlgorithmSpec own = parse_algorithm("hierarchical");
  if (std::ranges::count(own.algorithm().collectives, collective) == 0) return;
  own.dims = {ranks_per_node};
  all.push_back(std::move(own));
}

// Chains and pairs of trees keep both directions of many links busy. Of ranks that share the cores of one host, each
// that passes something on costs a change of whose turn it is instead: from or to a root, 16 KiB to 16 MiB over shared
// memory take two trees 1.1 to 3 times as long as one, and what is reduced along a chain up to 1.9 times.
bool is_for_separate_links(const SelectionSettings& settings, Collective collective, std::string_view algorithm) {
  const bool one_host = settings.links.crowded && is_shared_memory(settings.transport) && settings.topology == nullptr;
  return one_host && (collective == Collective::broadcast || collective == Collective::reduce) &&
         (algorithm == "ring" || algorithm == "double_binary_tree");
}

}  // namespace

Selection::Kind Selection::kind_of(Collective collective, Rank root) const {
  return {collective, settings_.topology == nullptr ? 0 : root};
}

const Selection::Candidates& Selection::candidates_for(Kind kind) {
  if (const auto found = candidates_.find(kind); found != candidates_.end()) return found->second;
  const auto [collective, root] = kind;
  std::vector<AlgorithmSpec> all = candidates(collective, settings_.world);
  if (settings_.topology != nullptr) add_own_grid(all, *settings_.topology, collective);
  add_own_nodes(all, settings_.world, settings_.ranks_per_node, collective);
  std::vector<Candidate> fitting, others;
  for (const AlgorithmSpec& spec : all) {
    if (is_for_separate_links(settings_, collective, spec.algorithm().name)) continue;
    const Schedule schedule =
        spec.algorithm().build({.collective = collective, .world = settings_.world, .root = root, .dims = spec.dims});
    const bool fits = settings_.topology == nullptr || missing_link(schedule, *settings_.topology).empty();
    (fits ? fitting : others)
        .push_back({.name = spec_text(spec),
                    .cost = ScheduleCost(schedule, settings_.ranks_per_node),
                    .lends = !schedule.buffered_in_place});
  }
  // Where no algorithm keeps to the links that there are, ranks have to forward for others.
  const bool any_fits = !fitting.empty();
  return candidates_[kind] = {.keep_to_links = any_fits, .all = std::move(any_fits ? fitting : others)};
}

const std::string& Selection::choice(Collective collective, std::size_t bytes, Rank root) {
  const auto fits = [&](const TuningRow& row) { return bytes <= row.up_to; };
  return std::ranges::find_if(rows(collective, root), fits)->algorithm;
}

std::string Selection::choice_for_uneven(Collective collective, std::size_t bytes) {
  // Of an exchange ranks know no sizes but their own, and whatever serves it sends from each rank to each other one.
  if (collective == Collective::all_to_all) return for_uneven_exchange;
  if (settings_.topology != nullptr && keeps_to_links(collective))
    for (const Prediction& each : ranked(collective, bytes))
      if (find_algorithm(parse_algorithm(each.algorithm).algorithm().name, collective).uneven) return each.algorithm;
  return settings_.world > most_direct ? "ring" : "direct";
}

bool Selection::keeps_to_links(Collective collective, Rank root) {
  const std::lock_guard lock(mutex_);
  return candidates_for(kind_of(collective, root)).keep_to_links;
}

Selection::Price Selection::price(const Candidate& each, Collective collective, std::size_t bytes) const {
  const bool shared_memory = is_shared_memory(settings_.transport);
  const bool leaves =
      shared_memory && collective == Collective::all_reduce && settings_.world > 2 && bytes >= leaves_caches;
  const bool lending = shared_memory && collective != Collective::all_to_all && bytes >= worth_lending;
  const double predicted = predict(settings_.links, each.cost, bytes, settings_.slice_bytes);
  return {lending && !each.lends, leaves && each.name == "ring" ? ring_in_caches * predicted : predicted};
}

const std::vector<TuningRow>& Selection::rows(Collective collective, Rank root) {
  const std::lock_guard lock(mutex_);
  const Kind kind = kind_of(collective, root);
  auto found = rows_.find(kind);
  if (found == rows_.end()) found = rows_.emplace(kind, make(kind)).first;
  return found->second;
}

std::vector<Prediction> Selection::ranked(Collective collective, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<Price, const Candidate*>> all;
  for (const Candidate& each : candidates_for(kind_of(collective, 0)).all)
    all.emplace_back(price(each, collective, bytes), &each);
  std::ranges::stable_sort(all, {}, [](const auto& each) { return each.first; });
  std::vector<Prediction> result;
  for (const auto& [price, each] : all) result.push_back({.algorithm = each->name, .seconds = price.second});
  return result;
}

std::vector<TuningRow> Selection::make(Kind kind) {
  const Collective collective = kind.first;
  const std::vector<Candidate>& all = candidates_for(kind).all;
  std::vector<Fastest> found;
  const Candidate* last = nullptr;
  for (std::size_t bytes = smallest; bytes <= largest; bytes *= 2) {
    const auto price_of = [&](const Candidate& each) { return price(each, collective, bytes); };
    const Candidate* best = &*std::ranges::min_element(all, {}, price_of);
    // Of equals, the one that sends each part straight to whom it is for.
    for (const Candidate& each : all)
      if (each.name == "direct" && price_of(each) == price_of(*best)) best = &each;
    if (last == nullptr || price_of(*last).first || price_of(*best).second < clearly * price_of(*last).second)
      last = best;
    found.push_back({.bytes = bytes, .algorithm = last->name});
  }
  return rows_of(
      found, {.collective = collective, .transport = settings_.transport, .ranks = settings_.world, .algorithm = {}});
}

}  // namespace ranvier::engine
