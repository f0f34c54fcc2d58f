// Measures worlds side by side. A machine changes its speed while one watches (clock, caches, neighbours), by more than
// the libraries differ; so their samples alternate one by one, and what is compared are neighbours.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/job.h"
#include "bench/world.h"

namespace ranvier::bench {

struct Sampling {
  std::uint64_t samples = 21;
  std::uint64_t checks = 1;                 // operations whose whole result is compared before the timing starts
  std::optional<std::uint64_t> iterations;  // operations in a sample; else as many as fill `target`
  std::optional<std::uint64_t> warmups;     // before each sample; else a tenth of its iterations
  std::chrono::duration<double> target = std::chrono::milliseconds(4);
};

struct Spread {
  double min = 0;
  double p25 = 0;
  double median = 0;
  double p75 = 0;
  double p99 = 0;
};
Spread spread_of(std::vector<double> values);

struct Measured {
  std::string refusal;           // the rest then means nothing
  std::uint64_t iterations = 0;  // in each sample
  std::uint64_t wrong = 0;       // elements, in all checks and at the end of each sample
  LossCounts losses;             // in all of them, of all ranks
  std::vector<double> samples;   // seconds of one operation, in the order in which they ran
  Spread seconds;                // of these
  bool fell_back = false;        // another algorithm ran than was asked for
  Spread ratio;                  // of a baseline: its time / ours, pair by pair; above 1 we are faster
};

struct Row {
  Job job;
  Measured ours;
  std::vector<Measured> baselines;  // in the order given
};

// Of jobs the collective, type, op, count, in_place and algorithm are used.
Row measure(World& ours, std::span<World* const> baselines, const Job& job, const Sampling&);
// Several jobs of one world, in turn sample by sample; in the order given, without ratios.
std::vector<Measured> measure_in_turn(World&, std::span<const Job> jobs, const Sampling&);

}  // namespace ranvier::bench
