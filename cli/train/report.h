// What a training run has come to: the table at its end and the same for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/options.h"

namespace ranvier::train {

struct Report {
  const Options& options;
  const Communicator& communicator;
  const trainer::TrainResult& result;
};

std::string to_table(const Report&);
nlohmann::json to_json(const Report&);

}  // namespace ranvier::train
