#include "engine/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "engine/request.h"

namespace ranvier::engine {
namespace {

// The choice of the size before stays unless another is better by more than the model can know, or a trial.
constexpr double clearly = 0.97;
// What has been tried replaces what the model took if it is faster by so much: with each change of algorithm the last
// bits of sums change, and no two trials are alike.
constexpr double clearly_tried = 0.95;
// Of large vectors in memory one and the same algorithm takes up to a quarter longer from one batch to the next.
constexpr double clearly_tried_in_memory = 0.9;

// What comes near, and how many: the model is seldom further off.
constexpr double near = 1.5;
constexpr std::size_t most_contenders = 12;

// Trials of vectors as large as these, which few links carry within the time that one may take, say what a byte costs
// where it is moved within a host; and the model's bytes are wrong by as much for larger ones.
constexpr std::size_t tells_of_bytes = 256 << 10;

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
// model counts bytes, not where they lie, so there a ring costs less than it says. Where ranks share cores, its many
// rounds cost no waiting either: in each all ranks have work, and whoever waits leaves the core to them. There (four
// ranks, two cores) an all_gather of 4 MiB takes two thirds, and a reduce_scatter of 512 KiB four fifths.
constexpr std::size_t leaves_caches = 256 << 10;
constexpr double ring_in_caches = 0.776;  // of what the model predicts

// Where a rank's part alone fills the caches of a core, nothing is still in them, and neither this nor what trials of
// smaller vectors showed holds any longer: "direct" takes 3 and 4 ranks 0.8 to 0.93 times as long as a ring for 16 and
// 64 MiB, 8 ranks 1.2 and 0.94 times.
constexpr std::size_t part_fills_caches = 2 << 20;

// Of a reduce_scatter that large, sums of some ranks' parts, which others pass on, leave the caches before they are
// read; who gets all parts from their owners adds them as he reads them. 3 to 16 ranks on 2 cores take 4 MiB in 0.66 to
// 0.85 of the time of any other algorithm.
constexpr std::size_t partial_sums_leave_caches = 1 << 20;
constexpr double without_partial_sums = 0.8;  // of what the model predicts
bool adds_at_once(std::string_view algorithm) { return algorithm == "direct" || algorithm == "round_robin"; }

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

// From or to a root, of a few ranks that share the cores of one host, the model is too far off: who passes something on
// costs a change of whose turn it is, a leaf that only sends runs ahead by as much as links hold, and over sockets the
// sender does most of the receiver's work as well. This is what was fastest, or within a tenth of it, of 4 ranks on 2
// cores (docs/benchmarks.md, "auto beside the best fixed algorithm"), and mostly of 3 and 8. Chains and pairs of trees,
// made to keep the links of many hosts busy both ways, took up to 1.9 and 4.2 times as long elsewhere.
struct Habit {
  Collective collective;
  std::size_t up_to;
  std::string_view algorithm;
};
constexpr Rank most_by_habit = 16;
constexpr Habit in_memory[] = {
    {Collective::broadcast, 8 << 10, "direct"}, {Collective::broadcast, largest, "bine_tree"},
    {Collective::reduce, 32 << 10, "direct"},   {Collective::reduce, 256 << 10, "bine_tree"},
    {Collective::reduce, largest, "direct"},    {Collective::gather, largest, "direct"},
    {Collective::scatter, largest, "direct"}};
constexpr Habit over_sockets[] = {
    {Collective::broadcast, 4 << 10, "ring"},     {Collective::broadcast, 32 << 10, "bine_tree"},
    {Collective::broadcast, largest, "ring"},     {Collective::reduce, 4 << 10, "direct"},
    {Collective::reduce, 2 << 20, "bine_tree"},   {Collective::reduce, 8 << 20, "direct"},
    {Collective::reduce, largest, "bine_tree"},   {Collective::gather, largest, "direct"},
    {Collective::scatter, 32 << 10, "bine_tree"}, {Collective::scatter, largest, "direct"}};

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
    const Schedule schedule =
        spec.algorithm().build({.collective = collective, .world = settings_.world, .root = root, .dims = spec.dims});
    const bool fits = settings_.topology == nullptr || missing_link(schedule, *settings_.topology).empty();
    const bool lends = !schedule.buffered_in_place;
    const ScheduleCost cost(schedule, settings_.ranks_per_node);
    (fits ? fitting : others).push_back({.name = spec_text(spec), .cost = cost, .lends = lends});
  }
  // Where no algorithm keeps to the links that there are, ranks have to forward for others.
  const bool any_fits = !fitting.empty();
  correct(collective, any_fits ? fitting : others);
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

bool Selection::is_among_many_in_memory() const { return is_shared_memory(settings_.transport) && settings_.world > 2; }
bool Selection::parts_fill_caches(Collective collective, std::size_t bytes) const {
  return collective == Collective::all_reduce && is_among_many_in_memory() &&
         bytes / static_cast<std::size_t>(settings_.world) > part_fills_caches;
}
bool Selection::rings_stay_in_caches(Collective collective, std::size_t bytes) const {
  if (!is_among_many_in_memory() || bytes < leaves_caches) return false;
  switch (collective) {
    case Collective::all_reduce:
      return !parts_fill_caches(collective, bytes);
    case Collective::all_gather:
      return settings_.links.crowded;
    case Collective::reduce_scatter:
      return settings_.links.crowded && bytes < partial_sums_leave_caches;
    default:
      return false;
  }
}

Selection::Price Selection::price(const Candidate& each, Collective collective, std::size_t bytes) const {
  const bool shared_memory = is_shared_memory(settings_.transport);
  const bool too_large = parts_fill_caches(collective, bytes);
  const bool lending = shared_memory && collective != Collective::all_to_all && bytes >= worth_lending;
  const bool in_caches = each.name == "ring" && rings_stay_in_caches(collective, bytes);
  LinkModel links = settings_.links;
  if (in_caches && links.crowded) links.latency = 0;
  if (has_root(collective)) links.lines.clear();  // from another root other ranks have its work
  const double predicted = predict(links, each.cost, bytes, settings_.slice_bytes);
  const bool at_once = is_among_many_in_memory() && collective == Collective::reduce_scatter &&
                       bytes >= partial_sums_leave_caches && adds_at_once(each.name);
  const double seconds = predicted * (in_caches ? ring_in_caches : at_once ? without_partial_sums : 1);
  return {lending && !each.lends, bytes > each.corrected_above && !too_large ? each.error * seconds : seconds};
}

const std::vector<TuningRow>& Selection::rows(Collective collective, Rank root) {
  const std::lock_guard lock(mutex_);
  const Kind kind = kind_of(collective, root);
  auto found = rows_.find(kind);
  if (found == rows_.end()) found = rows_.emplace(kind, make(kind)).first;
  return found->second;
}

std::vector<std::pair<Selection::Price, const Selection::Candidate*>> Selection::by_price(Collective collective,
                                                                                          std::size_t bytes) {
  std::vector<std::pair<Price, const Candidate*>> all;
  for (const Candidate& each : candidates_for(kind_of(collective, 0)).all)
    all.emplace_back(price(each, collective, bytes), &each);
  std::ranges::stable_sort(all, {}, [](const auto& each) { return each.first; });
  return all;
}

std::vector<Prediction> Selection::ranked(Collective collective, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<Prediction> result;
  for (const Trial& each : trials_of(collective, std::bit_floor(std::max(bytes, smallest))))
    result.push_back({.algorithm = each.algorithm, .seconds = each.seconds});
  if (!result.empty()) {
    std::ranges::stable_sort(result, {}, &Prediction::seconds);
    return result;
  }
  for (const auto& [price, each] : by_price(collective, bytes))
    result.push_back({.algorithm = each->name, .seconds = price.second});
  return result;
}

std::vector<Prediction> Selection::contenders(Collective collective, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<Prediction> result;
  const auto all = by_price(collective, bytes);
  const Price first = all.front().first;
  for (const auto& [price, each] : all) {
    if (price.first != first.first || price.second > near * first.second || result.size() == most_contenders) break;
    // Between two ranks what costs the same is the same, and `cheapest` calls it "direct".
    if (settings_.world == 2 && !result.empty() && price.second < 1.001 * result.back().seconds) {
      if (each->name == "direct") result.back().algorithm = each->name;
      continue;
    }
    result.push_back({.algorithm = each->name, .seconds = price.second});
  }
  return result;
}

// ---- What was tried.

// Of the size between two that were tried the geometric mean, whose bits are the same on all machines, as those of a
// root are; of one below the least, that one's.
std::vector<Trial> Selection::trials_of(Collective collective, std::size_t bytes) const {
  std::vector<Trial> found, below, above;
  for (const Trial& each : settings_.trials) {
    if (each.collective != collective) continue;
    const auto collect = [&](std::vector<Trial>& all, bool is_nearer) {
      if (!all.empty() && all.front().bytes != each.bytes && is_nearer) all.clear();
      if (all.empty() || all.front().bytes == each.bytes) all.push_back(each);
    };
    if (each.bytes <= bytes) collect(below, below.empty() || each.bytes > below.front().bytes);
    if (each.bytes >= bytes) collect(above, above.empty() || each.bytes < above.front().bytes);
  }
  if (above.empty()) return {};
  if (below.empty() || above.front().bytes == below.front().bytes) return above;
  for (Trial& each : below) {
    const auto other = std::ranges::find(above, each.algorithm, &Trial::algorithm);
    if (other == above.end()) continue;
    each.seconds = std::sqrt(each.seconds * other->seconds);
    found.push_back(std::move(each));
  }
  return found;
}

std::size_t Selection::largest_tried(Collective collective) const {
  std::size_t bytes = 0;
  for (const Trial& each : settings_.trials)
    if (each.collective == collective) bytes = std::max(bytes, each.bytes);
  return bytes;
}

// Those that were not tried are believed to be as wrong as the others. Of what those that were differ in, half, as
// factors go, is theirs, and half what they met in that moment: a ring that took 1.1 times as long as a torus for 256
// KiB takes three quarters of its time for 4 MiB.
void Selection::correct(Collective collective, std::vector<Candidate>& all) const {
  const std::size_t bytes = largest_tried(collective);
  if (bytes < tells_of_bytes) return;
  std::vector<double> errors;
  for (const Trial& trial : trials_of(collective, bytes)) {
    const auto found = std::ranges::find(all, trial.algorithm, &Candidate::name);
    if (found == all.end()) continue;
    found->error = trial.seconds / price(*found, collective, bytes).second;
    found->corrected_above = bytes;
    errors.push_back(found->error);
  }
  if (errors.empty()) return;
  std::ranges::sort(errors);
  const double usual = errors[errors.size() / 2];
  for (Candidate& each : all) {
    each.error = each.corrected_above == bytes ? std::sqrt(each.error * usual) : usual;
    each.corrected_above = bytes;
  }
}

// ---- Rows.

const Selection::Candidate* Selection::usual(const std::vector<Candidate>& all, Collective collective,
                                             std::size_t bytes) const {
  const bool is_known = settings_.on_one_host && settings_.links.crowded && settings_.topology == nullptr &&
                        settings_.world > 2 && settings_.world <= most_by_habit;
  if (!is_known) return nullptr;
  const auto is_it = [&](const Habit& habit) { return habit.collective == collective && bytes <= habit.up_to; };
  const std::span<const Habit> habits =
      is_shared_memory(settings_.transport) ? std::span<const Habit>(in_memory) : std::span<const Habit>(over_sockets);
  const auto habit = std::ranges::find_if(habits, is_it);
  if (habit == habits.end()) return nullptr;
  const auto found = std::ranges::find(all, habit->algorithm, &Candidate::name);
  return found == all.end() ? nullptr : &*found;
}

const Selection::Candidate* Selection::cheapest(const std::vector<Candidate>& all, Collective collective,
                                                std::size_t bytes, const Candidate* last) const {
  if (const Candidate* const known = usual(all, collective, bytes)) return known;
  const auto price_of = [&](const Candidate& each) { return price(each, collective, bytes); };
  const Candidate* best = &*std::ranges::min_element(all, {}, price_of);
  // Of equals, the one that sends each part straight to whom it is for.
  for (const Candidate& each : all)
    if (each.name == "direct" && price_of(each) == price_of(*best)) best = &each;
  if (last == nullptr || price_of(*last).first || price_of(*best).second < clearly * price_of(*last).second)
    return best;
  return last;
}

const Selection::Candidate* Selection::fastest(const std::vector<Candidate>& all, Collective collective,
                                               std::size_t bytes, const Candidate* last,
                                               const Candidate* cheapest) const {
  const std::vector<Trial> tried = trials_of(collective, bytes);
  if (tried.empty()) return cheapest;
  const Trial& best = *std::ranges::min_element(tried, {}, &Trial::seconds);
  const auto is_as_fast = [&](const Candidate* candidate, double share) {
    const auto found = std::ranges::find(tried, candidate->name, &Trial::algorithm);
    return found != tried.end() && best.seconds >= share * found->seconds;
  };
  if (last != nullptr && is_as_fast(last, clearly)) return last;
  const double clear = rings_stay_in_caches(collective, bytes) ? clearly_tried_in_memory : clearly_tried;
  if (is_as_fast(cheapest, clear)) return cheapest;
  return &*std::ranges::find(all, best.algorithm, &Candidate::name);
}

std::vector<TuningRow> Selection::make(Kind kind) {
  const Collective collective = kind.first;
  const std::vector<Candidate>& all = candidates_for(kind).all;
  std::vector<Fastest> found;
  const Candidate* last = nullptr;
  for (std::size_t bytes = smallest; bytes <= largest; bytes *= 2) {
    // What was best within the caches is not held on to beyond them.
    if (parts_fill_caches(collective, bytes) && !parts_fill_caches(collective, bytes / 2)) last = nullptr;
    last = fastest(all, collective, bytes, last, cheapest(all, collective, bytes, last));
    found.push_back({.bytes = bytes, .algorithm = last->name});
  }
  return rows_of(
      found, {.collective = collective, .transport = settings_.transport, .ranks = settings_.world, .algorithm = {}});
}

}  // namespace ranvier::engine
