// What `ranvier simulate` was asked for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flags.h"
#include "ranvier/simulate.h"
#include "ranvier/sync.h"
#include "simulate/network.h"

namespace ranvier::simulation {

struct Options {
  std::vector<Rank> worlds;
  NetworkOptions network;
  std::string workload;
  std::string communicator_file;  // of the process groups of a trace
  // A trace by its own graph; that of a plan is taken as the plan took it, as layers of all ranks.
  bool by_graph = false;
  std::string compress;   // empty: nothing
  std::string sync;       // empty: gradients in every step
  std::size_t bytes = 0;  // of one all_reduce, instead of a workload
  StepSimulation step;
  std::vector<Rank> placement;  // see with_placement; empty: as numbered
  double planned_ns = 0;        // what a plan expects of a step; 0: there is none
  std::string measured = {};    // by what it expects that, in its words, if it was made again
  bool any_algorithm = false;   // none was named
  PolicySimulation policy;      // of `sync`, but for its levels, …
  std::string place;            // … which this makes of as many replicas as there are
  std::optional<std::pair<Rank, double>> straggler;
  FailureModel failures;
  std::optional<Crash> crash;
  Loss loss = Loss::host;         // what of the rank
  std::vector<std::string> cuts;  // see without() in simulate/cut.h
  std::string trace_file;
  std::string json_file;
};

// A fresh one, of --sync.
std::unique_ptr<SyncPolicy> policy_of(const Options&, Rank replicas);

// None if there is nothing left to do. Throws Error{usage}.
std::optional<Options> parse_options(const cli::Arguments&);

}  // namespace ranvier::simulation
