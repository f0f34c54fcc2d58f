// One benchmark from its first size to its last.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/world.h"
#include "output.h"

namespace ranvier::bench {

// Measures every size and prints its row, if Options::prints(); then writes `file`. `absent`: why baselines that were
// wished for are missing. Returns the exit code: 1 if any of our elements was wrong.
int measure_all(const Options& options, World& ours, const std::vector<World*>& baselines,
                const std::vector<std::string>& absent, const cli::JsonFile& file);

}  // namespace ranvier::bench
