// What `ranvier bench` is asked for.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/communicator_peer.h"
#include "bench/sampling.h"
#include "flags.h"
#include "ranvier/security.h"
#include "ranvier/transport.h"
#include "ranvier/types.h"

namespace ranvier::bench {

struct Options {
  std::size_t min_bytes = 4;
  std::size_t max_bytes = std::size_t{64} << 20;
  double step_factor = 4;
  Sampling sampling;

  Collective collective = Collective::all_reduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  Rank root = 0;  // of collectives that have one
  bool in_place = true;
  Buffers buffers = Buffers::malloc;  // of ranvier; its peers have theirs from malloc

  std::string transport = "auto";
  std::string algorithm = "auto";
  std::string tuning;  // the table that auto looks at
  std::string interface_address;
  std::uint64_t sockets = 1;  // of tcp, a link
  PortRange ports;
  SecurityOptions security;
  double link_bytes_per_second = 0;  // 0: as fast as it goes

  std::optional<Rank> ranks;           // none: this process is a rank of a world that stands
  std::optional<std::uint64_t> nodes;  // on so many hosts, as far as shared memory goes
  std::optional<bool> pin;             // none: if there is a core for each rank
  std::vector<std::string> baselines;
  bool every_baseline = false;  // those that this machine has; else each that was named must be there
  std::string python;
  std::chrono::milliseconds timeout{60'000};
  std::chrono::milliseconds join_timeout{60'000};
  // A rank that nothing is heard of for so long is given up. Longer than CommunicatorOptions has it: a benchmark crowds
  // its machine, and ranks that get no turn while others are measured are not dead.
  std::chrono::milliseconds dead_after{30'000};
  std::string json_file;
  bool prints() const { return json_file != "-"; }  // stdout is the table's, else JSON's alone

  std::string tune_file;                // measure all algorithms instead, and write the table of the fastest
  bool measure = true;                  // the links, for auto: see CommunicatorOptions
  bool learn = false;                   // likewise
  bool probe = false;                   // print what they can do and what auto makes of it instead of timing anything
  bool compare = false;                 // measure every transport of this build instead of one
  std::uint64_t latency_samples = 400;  // of each of them: the 99th percentile is the fifth slowest
  bool explain = false;                 // print the schedules instead of timing them
  std::vector<std::string> topologies;  // to explain schedules on; else at most the one that data has to keep to

  cli::Arguments arguments;  // as given, for the ranks that are started
};

// "1 rank", "2 ranks"
std::string in_words(Rank ranks);

// Throws Error{usage}. None: --help was asked for and given.
std::optional<Options> parse_options(const cli::Arguments&);

// What is timed at one size. Throws Error{usage} where the world has no such root.
Job job_of(const Options&, std::size_t bytes, Rank world);
// min, min * factor, … up to max; each at least one byte more than the last.
std::vector<std::size_t> sizes(const Options&);

}  // namespace ranvier::bench
