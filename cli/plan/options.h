// What `ranvier plan` was asked for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flags.h"
#include "plan/replan.h"
#include "ranvier/plan.h"
#include "simulate/network.h"

namespace ranvier::planning {

// A plan that is followed, and was wrong.
struct Again {
  std::string file;
  Measured measured;
};

struct Options {
  std::optional<Again> again;  // then of all else only the files that are written
  std::string workload;
  std::string communicator_file;  // of a trace, empty: none
  std::string transport;          // empty: those of the networks
  Rank world = 1;
  simulation::NetworkOptions network;
  std::vector<PlanPolicy> policies;
  std::string place;  // of policies with nodes
  UnequalWorkers unequal;
  std::vector<std::string> codecs;  // beside none
  std::string gradients_flag;       // one that was given and is of gradients, which not all traces tell; empty: none
  double memory_bytes = 0;          // of a rank
  SearchLimit limit;
  std::string output;
  std::string tuning;
  std::string json;
};

// None if there is nothing left to do. Throws Error{usage}.
std::optional<Options> parse_options(const cli::Arguments&);

}  // namespace ranvier::planning
