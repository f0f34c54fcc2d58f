// What `ranvier train --json` wrote of a run, as far as runs are compared by it.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/bottleneck.h"

namespace ranvier::cli {

// None where a model has no such score, or has diverged.
struct TestScore {
  std::optional<double> accuracy = {};
  std::optional<double> loss = {};
  std::optional<double> frechet_distance = {};
};

struct TrainedRun {
  struct Evaluation {
    std::size_t step = 0;
    double seconds = 0;
    TestScore test = {};
  };
  std::string file;
  std::map<std::string, std::string> settings = {};  // without empty ones, and without what belongs to one run only
  std::vector<Evaluation> history = {};              // one at least
  double seconds = 0;
  double bytes_per_worker = 0;
  double rounds = 0;  // exchanges of a worker
  double exposed_share = 0;
  double lost_share = 0;  // of what others' gradients hold: bounded loss
  StepShares shares = {};
};

// Throws Error{config} for what is no such file.
TrainedRun read_run(const std::filesystem::path& file);

}  // namespace ranvier::cli
