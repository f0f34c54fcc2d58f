// Runs side by side: what they have reached, and what it took.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/trained_run.h"

namespace ranvier::cli {

// What runs are judged by. Of one that falls, less is better.
struct Measure {
  std::string_view name;  // "accuracy", "loss", "Fréchet distance"
  std::optional<double> TestScore::*score;
  bool falls = false;
};

struct Target {
  Measure measure = {};
  double value = 0;
  bool is_given = false;  // and not the best that all runs reach
};

// `accuracy` or `loss`, if one is given. Throws Error{usage} where not all runs have a score in common.
Target target_of(const std::vector<TrainedRun>& runs, std::optional<double> accuracy, std::optional<double> loss);
// Of the first evaluation that has reached it; none where none has.
std::optional<double> seconds_to(const Target& target, const TrainedRun& run);
// "sync local:30, compress int4": in what this run differs from any other one.
std::string differences(const TrainedRun& run, const std::vector<TrainedRun>& runs);

std::string to_table(const std::vector<TrainedRun>& runs, const Target& target);
nlohmann::json to_json(const std::vector<TrainedRun>& runs, const Target& target);

}  // namespace ranvier::cli
