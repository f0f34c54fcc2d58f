#include "bench/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/job.h"
#include "machine.h"
#include "output.h"
#include "ranvier/schedule.h"
#include "ranvier/topology.h"

namespace ranvier::bench {
namespace {

constexpr Rank most_drawn_ranks = 64;  // wider drawings are more than anybody reads

// A schedule, and what was found out about it, on each topology that was named.
struct Explained {
  Schedule schedule;
  Assessment found;
};

bool works_in_place(const Schedule& schedule) { return schedule.collective != Collective::neighbor_exchange; }

// Without dims the algorithm chooses its own.
Explained explain_one(const Algorithm& algorithm, const AlgorithmSpec& spec, const Options& options,
                      const std::vector<Topology>& topologies) {
  Explained result;
  result.schedule = algorithm.build({.collective = options.collective,
                                     .world = *options.ranks,
                                     .root = options.root,
                                     .dims = spec.dims,
                                     .periodic = spec.periodic});
  result.found = assess(result.schedule, topologies);
  return result;
}

std::string plural(std::size_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

// 1.75, 0.1429, 14, 32768
std::string times_n(double load) { return load < 10'000 ? fmt::format("{:.4g}", load) : fmt::format("{:.0f}", load); }

nlohmann::json link_json(const Topology& topology, LinkNumber number) {
  const Link& link = topology.links[number];
  return {{"from", vertex_name(topology, link.from)}, {"to", vertex_name(topology, link.to)}};
}

void print_details(const Explained& explained, const std::vector<Topology>& topologies) {
  const Schedule& schedule = explained.schedule;
  const auto& [verdict, contentions] = explained.found;
  if (schedule.world <= most_drawn_ranks)
    fmt::print("{}\n", draw(schedule));
  else
    fmt::print("{} by {}: {} ranks, {}; more than {} ranks are not drawn\n\n", name_of(schedule.collective),
               schedule.algorithm, schedule.world, plural(schedule.chunks, "chunk"), most_drawn_ranks);
  if (verdict.ok)
    fmt::print("proven: every output holds every contribution exactly once and nothing deadlocks{}{}\n",
               works_in_place(schedule) ? ", in place or not" : "",
               schedule.buffered_in_place ? "; in place it needs links that buffer a slice" : "");
  else
    fmt::print("not proven: {}\n", verdict.problem);
  fmt::print("cost: {}; the busiest rank sends {} n in {} (n: the bytes of the whole vector)\n",
             plural(verdict.rounds, "round"), times_n(explained.found.sent()),
             plural(verdict.most_messages, "message"));
  for (std::size_t i = 0; i < topologies.size(); ++i) {
    const Topology& topology = topologies[i];
    const Contention& found = contentions[i];
    if (found.most_transfers == 0) {
      fmt::print("on {}: nobody sends\n", topology.name);
      continue;
    }
    fmt::print("on {}: at most {} on one link in a round, first in round {} on {}\n", topology.name,
               plural(found.most_transfers, "transfer"), found.round, link_name(topology, found.link));
    fmt::print("  the busiest link, {}, carries {} n; each round's busiest link, added up, {} n; all links {} n\n",
               link_name(topology, found.busiest_link), times_n(found.busiest_load), times_n(found.load_by_rounds),
               times_n(found.traffic));
    const std::string missing = missing_link(schedule, topology);
    fmt::print("  {}\n",
               missing.empty() ? "neighbours only: no rank forwards for others" : "not neighbours only: " + missing);
  }
}

// A pair of columns a topology, as wide as its name asks.
void print_table(const std::vector<Explained>& all, const Options& options, const std::vector<Topology>& topologies) {
  fmt::print("# {} of {}{}; n: the bytes of the whole vector\n", name_of(options.collective),
             plural(static_cast<std::size_t>(*options.ranks), "rank"),
             has_root(options.collective) ? fmt::format(", root {}", options.root) : "");
  fmt::print("# sent: by the busiest rank; share: the most transfers on one link in a round\n");
  fmt::print("# load: what each round's busiest link carries, added up\n#\n");
  const auto width = [](const Topology& topology) { return std::max<std::size_t>(topology.name.size(), 14); };
  std::string titles = fmt::format("#{:57}", ""), columns, units;
  for (const Topology& topology : topologies) {
    titles += fmt::format("  {:>{}}", topology.name, width(topology));
    columns += fmt::format("  {:>{}} {:>8}", "share", width(topology) - 9, "load");
    units += fmt::format("  {:>{}} {:>8}", "", width(topology) - 9, "(n)");
  }
  fmt::print("{}\n", titles);
  fmt::print("# {:<18} {:>9} {:>7} {:>9} {:>9}{}\n", "algorithm", "verdict", "rounds", "messages", "sent", columns);
  fmt::print("# {:<18} {:>9} {:>7} {:>9} {:>9}{}\n", "", "", "", "", "(n)", units);
  for (const Explained& each : all) {
    fmt::print("  {:<18} {:>9} {:>7} {:>9} {:>9}", each.schedule.algorithm, each.found.verdict.ok ? "proven" : "wrong",
               each.found.verdict.rounds, each.found.verdict.most_messages, times_n(each.found.sent()));
    for (std::size_t i = 0; i < topologies.size(); ++i)
      fmt::print("  {:>{}} {:>8}", each.found.contentions[i].most_transfers, width(topologies[i]) - 9,
                 times_n(each.found.contentions[i].load_by_rounds));
    fmt::print("\n");
  }
}

nlohmann::json json_of(const Explained& explained, const std::vector<Topology>& topologies) {
  const Schedule& schedule = explained.schedule;
  const auto& [verdict, contentions] = explained.found;
  nlohmann::json result = {{"collective", name_of(schedule.collective)},
                           {"algorithm", schedule.algorithm},
                           {"ranks", schedule.world},
                           {"root", schedule.root},
                           {"chunks", schedule.chunks},
                           {"proven", verdict.ok},
                           {"problem", verdict.problem},
                           {"rounds", verdict.rounds},
                           {"messages", verdict.most_messages},
                           {"sent", explained.found.sent()},
                           {"contention", nlohmann::json::array()}};
  for (std::size_t i = 0; i < topologies.size(); ++i) {
    const Contention& found = contentions[i];
    nlohmann::json entry = {
        {"topology", topologies[i].name},     {"most_transfers", found.most_transfers},
        {"busiest_load", found.busiest_load}, {"load_by_rounds", found.load_by_rounds},
        {"traffic", found.traffic},           {"missing_link", missing_link(schedule, topologies[i])}};
    if (found.most_transfers > 0)
      entry.update({{"round", found.round},
                    {"link", link_json(topologies[i], found.link)},
                    {"busiest_link", link_json(topologies[i], found.busiest_link)}});
    result["contention"].push_back(entry);
  }
  return result;
}

}  // namespace

int explain(const Options& options) {
  const cli::JsonFile file(options.json_file);
  std::vector<Topology> topologies;
  for (const auto& spec : options.topologies) topologies.push_back(make_topology(spec, *options.ranks));

  std::vector<Explained> all;
  if (options.algorithm != "auto") {
    const AlgorithmSpec spec = parse_algorithm(options.algorithm);
    all.push_back(explain_one(spec.algorithm(), spec, options, topologies));
    if (options.prints()) print_details(all.front(), topologies);
  } else {
    for (const Algorithm& algorithm : algorithms()) {
      const auto& built = algorithm.collectives;
      if (std::find(built.begin(), built.end(), options.collective) == built.end()) continue;
      all.push_back(explain_one(algorithm, {}, options, topologies));
    }
    if (options.prints()) print_table(all, options, topologies);
  }

  nlohmann::json result = {{"schedules", nlohmann::json::array()}, {"environment", cli::environment()}};
  result["environment"]["arguments"] = options.arguments;
  for (const Explained& each : all) result["schedules"].push_back(json_of(each, topologies));
  file.write(result);

  int code = 0;
  for (const Explained& each : all) {
    if (each.found.verdict.ok) continue;
    cli::say(fmt::format("ranvier bench: {} by {} is not proven: {}; report this\n", name_of(each.schedule.collective),
                         each.schedule.algorithm, each.found.verdict.problem));
    code = 1;
  }
  return code;
}

}  // namespace ranvier::bench
