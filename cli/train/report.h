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
  std::size_t lost = 0;      // workers, since the beginning, …
  std::size_t returned = 0;  // … and how many have come in their place
};

std::string to_table(const Report&);
nlohmann::json to_json(const Report&);

}  // namespace ranvier::train
