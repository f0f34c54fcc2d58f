#include "simulate/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "plan/tuner/possible.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::simulation {
namespace {

using nlohmann::json;

// "3", "s0"
std::optional<Vertex> vertex_of(const Topology& topology, std::string_view text) {
  const bool is_switch = text.starts_with('s');
  const auto number = parse_number<Vertex>(text.substr(is_switch ? 1 : 0));
  const Vertex most = is_switch ? topology.switches : topology.world;
  if (!number || *number < 0 || *number >= most) return std::nullopt;
  return is_switch ? topology.world + *number : *number;
}

}  // namespace

Topology without(const Topology& topology, const std::vector<std::string>& cuts) {
  if (cuts.empty()) return topology;
  std::vector<Cable> cables;
  for (const std::string& text : cuts) {
    const auto dash = text.find('-');
    const auto one = vertex_of(topology, std::string_view(text).substr(0, dash));
    const auto other =
        dash == std::string::npos ? std::nullopt : vertex_of(topology, std::string_view(text).substr(dash + 1));
    if (!one || !other)
      throw Error(ErrorKind::usage,
                  fmt::format("--cut '{}' is not a cable of {}, with {} ranks and {} switches; write 0-1 "
                              "for that of two ranks, 3-s0 for that of a rank and a switch",
                              text, topology.name, topology.world, topology.switches));
    cables.push_back({*one, *other});
  }
  return without_cables(topology, cables);
}

std::vector<CutTime> compare(const std::vector<std::string>& algorithms, const Topology& whole, const Topology& left,
                             const std::function<double(const std::string&, const Topology&)>& time) {
  std::vector<CutTime> times;
  std::string refusal;
  for (const std::string& algorithm : algorithms) {
    const auto before = plan::if_possible([&] { return time(algorithm, whole); }, refusal);
    if (!before) continue;
    CutTime each{.algorithm = algorithm, .whole_ns = *before};
    each.ns = plan::if_possible([&] { return time(algorithm, left); }, each.refusal);
    times.push_back(std::move(each));
  }
  if (times.empty()) plan::refuse_all(refusal);
  std::ranges::stable_sort(
      times, {}, [](const CutTime& each) { return each.ns.value_or(std::numeric_limits<double>::infinity()); });
  return times;
}

void print(const std::vector<CutTime>& times) {
  fmt::print("{:<22} {:>12} {:>12} {:>8}\n", "algorithm", "whole ms", "cut ms", "times");
  for (const CutTime& each : times) {
    fmt::print("{:<22} {:>12.4f} ", each.algorithm, each.whole_ns / 1e6);
    if (each.ns)
      fmt::print("{:>12.4f} {:>8.2f}\n", *each.ns / 1e6, *each.ns / each.whole_ns);
    else
      fmt::print("{:>12} {}\n", "-", each.refusal);
  }
}

json to_json(const std::vector<CutTime>& times) {
  json all = json::array();
  for (const CutTime& each : times) {
    all.push_back({{"algorithm", each.algorithm}, {"whole_ns", each.whole_ns}});
    if (each.ns)
      all.back()["ns"] = *each.ns;
    else
      all.back()["refusal"] = each.refusal;
  }
  return all;
}

}  // namespace ranvier::simulation
