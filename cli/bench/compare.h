// `ranvier bench --compare-transports`: the same operations over every transport of this build, side by side.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/world.h"
#include "output.h"

namespace ranvier::bench {

// Those of the build, and udp that may lose gradients, which trades what they do not.
std::vector<std::string> compared_transports();

struct Compared {
  std::string transport;
  std::string absent = {};  // why it is not here; else …
  std::unique_ptr<World> world = nullptr;
};

// Measures latency at --minbytes, one operation at a time, and throughput and CPU time at --maxbytes; counts on the way
// what was late, lost, damaged, missing and wrong. The samples of all transports alternate. `where`: the ranks are.
// Prints a table and writes `file`; one that fails on the way is absent from then on. Returns the exit code: 1 if one
// did, or any element was wrong.
int compare_transports(const Options& options, Rank ranks, const std::string& where, std::vector<Compared>& all,
                       const cli::JsonFile& file);

}  // namespace ranvier::bench
