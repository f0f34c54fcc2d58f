// Cables that are lost: which algorithms still run, and how long they take on other ways.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ranvier/topology.h"

namespace ranvier::simulation {

// `cuts` are ends of cables, "0-1" of ranks and "3-s0" of a rank and a switch. Throws Error{usage}.
Topology without(const Topology&, const std::vector<std::string>& cuts);

struct CutTime {
  std::string algorithm;
  double whole_ns = 0;
  std::optional<double> ns = {};  // without the cables
  std::string refusal = {};       // where it does not run
};
// Of all algorithms that run on the whole network, the fastest without the cables first. `time` of an algorithm on a
// network throws Error{usage} where it does not run.
std::vector<CutTime> compare(const std::vector<std::string>& algorithms, const Topology& whole, const Topology& left,
                             const std::function<double(const std::string&, const Topology&)>& time);

void print(const std::vector<CutTime>&);
nlohmann::json to_json(const std::vector<CutTime>&);

}  // namespace ranvier::simulation
