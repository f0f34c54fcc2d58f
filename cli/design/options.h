// What `ranvier design` was asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flags.h"
#include "ranvier/design.h"
#include "ranvier/design_files.h"
#include "ranvier/design_search.h"

namespace ranvier::design {

struct Options {
  NetworkShape network;
  std::vector<std::string> workloads;
  std::vector<double> weights;  // as many as workloads
  std::string traffic_file;
  std::string communicator_file;
  std::vector<Constraint> constraints;  // the budget among them
  Objective objective = Objective::time;
  CostTable costs;
  std::vector<double> unit_costs;  // dollars per GB/s of one NPU, by dimension
  StepOptions step;
  bool overlap = false;
  std::optional<int> nics;                 // of which one may fail
  std::vector<double> link_gbps;           // whole links, by dimension; empty: any bandwidth
  bool study = false;                      // of all networks and workloads that it is about
  std::optional<ShapeSearch> enumeration;  // instead of `network`
  std::string budget;                      // as it was written
  std::string pareto_file;
  std::string json_file;
};

// None if there is nothing left to do. Throws Error{usage}.
std::optional<Options> parse_options(const cli::Arguments&);

// Of the budget, all of it to be spent.
Constraint budget_constraint(const std::string& word, std::size_t dimensions);

}  // namespace ranvier::design
