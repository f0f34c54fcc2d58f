#include "simulate/crash.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "simulate/prediction.h"

namespace ranvier::simulation {
namespace {

using nlohmann::json;

std::string_view name_of(Loss loss) { return loss == Loss::host ? "host" : "process"; }

void print_waiting(const std::vector<RankEnd>& ends, Rank lost) {
  std::vector<Rank> waiting;
  for (Rank rank = 0; rank < std::ssize(ends); ++rank)
    if (rank != lost && !ends[static_cast<std::size_t>(rank)].finished) waiting.push_back(rank);
  const auto since = [&](Rank rank) { return ends[static_cast<std::size_t>(rank)].ns; };
  const std::size_t others = ends.size() - 1;
  if (waiting.empty()) return fmt::print("  all {} others have their result\n", others);
  const Rank first = *std::ranges::min_element(waiting, {}, since);
  const Rank last = *std::ranges::max_element(waiting, {}, since);
  fmt::print(
      "  {} of {} others have their result; the rest waits, first rank {} for rank {}, from {:.4f} ms on, last rank "
      "{} for rank {}, from {:.4f} ms on\n",
      others - waiting.size(), others, first, ends[static_cast<std::size_t>(first)].waits_for, since(first) / 1e6, last,
      ends[static_cast<std::size_t>(last)].waits_for, since(last) / 1e6);
}

}  // namespace

Aftermath after_crash(const Options& options, const Topology& topology, const Schedule& schedule, std::size_t count) {
  SimulateOptions how = transfers_of(options, topology.world);
  how.crash = options.crash;
  return {.crash = *options.crash,
          .loss = options.loss,
          .detection = simulate_detection(topology, options.crash->rank, options.loss),
          .ends = simulate(schedule, topology, count, 4, how).ends};
}

// All communicate in every collective of a step, so that the one that is under way, or the next, is the last.
Aftermath after_crash(const Options& options, const Topology& topology, const StepPrediction& step) {
  Aftermath result{.crash = *options.crash,
                   .loss = options.loss,
                   .detection = simulate_detection(topology, options.crash->rank, options.loss)};
  for (const auto& each : step.timeline)
    if (!each.computes && each.end_ns > options.crash->at_ns && result.waits_in.empty()) result.waits_in = each.name;
  if (result.waits_in.empty()) result.waits_in = "the first collective of the next step";
  return result;
}

void print(const Aftermath& after) {
  const Rank lost = after.crash.rank;
  fmt::print("rank {} is lost after {:.4f} ms, with its {}\n", lost, after.crash.at_ns / 1e6, name_of(after.loss));
  if (!after.ends.empty()) print_waiting(after.ends, lost);
  if (!after.waits_in.empty()) fmt::print("  {} does not end\n", after.waits_in);
  std::vector<Rank> by;
  for (const auto& each : after.detection.by_themselves) by.push_back(each.rank);
  fmt::print("  noticed by rank{} {} after {:.6f} s; after {:.6f} s all have ended with an error that names rank {}\n",
             by.size() > 1 ? "s" : "", fmt::join(by, ", "), after.detection.by_themselves.front().ns / 1e9,
             after.detection.all_know_ns / 1e9, lost);
}

json to_json(const Aftermath& after) {
  json result = {{"rank", after.crash.rank},
                 {"at_ns", after.crash.at_ns},
                 {"of", name_of(after.loss)},
                 {"all_know_ns", after.detection.all_know_ns}};
  for (const auto& each : after.detection.by_themselves)
    result["noticed_by"].push_back({{"rank", each.rank}, {"ns", each.ns}});
  for (Rank rank = 0; rank < std::ssize(after.ends); ++rank) {
    const RankEnd& end = after.ends[static_cast<std::size_t>(rank)];
    json& ranks = result["ranks"];
    ranks.push_back({{"rank", rank}, {"finished", end.finished}, {"last_ns", end.ns}});
    if (end.waits_for >= 0) ranks.back()["waits_for"] = end.waits_for;
  }
  if (!after.waits_in.empty()) result["waits_in"] = after.waits_in;
  return result;
}

}  // namespace ranvier::simulation
