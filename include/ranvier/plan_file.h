// What `ranvier plan` decided, as one file that people can read and edit: `ranvier train --plan` obeys it, and compares
// its prediction with what happens.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "ranvier/simulate.h"
#include "ranvier/types.h"
#include "ranvier/unequal_workers.h"

namespace ranvier {

struct Plan {
  // What it is for.
  std::string workload = {};
  std::string communicator = {};  // of a trace and of ASTRA-sim's text: the file of its groups
  std::string network = {};       // as make_topology takes it, or a file of ranvier probe
  double link_gbit = 0;           // of each link, with its latency; 0: the file says so
  double latency_us = 0;
  Rank ranks = 1;
  // What it chooses.
  std::string transport = "auto";
  std::string compress = "none";                  // spec of an Exchange
  std::string sync = "bsp";                       // spec of a SyncPolicy
  std::string place = {};                         // of its levels, as SynchronizerOptions has it
  std::vector<Rank> placement = {};               // rank r runs in the place of rank placement[r]; empty: in its own
  std::size_t bucket_bytes = 0;                   // of gradients; 0: of a trace that does not tell them
  std::vector<FastestAlgorithm> all_reduce = {};  // algorithm by size; without times in the file
  // What it expects.
  UnequalWorkers unequal = {};  // of replicas, so that this is the mean of many steps
  double step_ns = 0;
  double compute_ns = 0;
  double exposed_communication_ns = 0;
  // Why: sentences for people. Of a plan made again, by what was measured, one that begins so.
  std::vector<std::string> because = {};
  static constexpr std::string_view again = "again: ";
};

std::string to_toml(const Plan&);
// Throws Error{config} that names line and column; for an unknown key or algorithm with the nearest right one.
Plan read_plan(const std::filesystem::path&);

}  // namespace ranvier
