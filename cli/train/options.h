// What `ranvier train` was asked to do.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "flags.h"
#include "integrations/trainer/default_data.h"
#include "integrations/trainer/trainer.h"
#include "ranvier/communicator.h"
#include "ranvier/plan_file.h"

namespace ranvier::train {

struct Options {
  cli::Arguments arguments;     // as they were given, for the workers
  std::optional<Rank> workers;  // none: not asked for
  std::string workers_source;   // "RANVIER_WORKERS: " or the file of --config, where no flag asks for them
  std::string data{trainer::default_data};
  std::string link_rate;  // as it was written; empty: as fast as it goes
  std::string json_file;
  std::string record_folder;  // empty: nothing is recorded
  std::optional<Plan> plan;
  std::chrono::milliseconds replan_limit = std::chrono::seconds(2);  // while all ranks wait
  trainer::TrainSettings trainer;
  CommunicatorOptions communicator;
  bool survive = false;         // workers that are left go on where others are lost, …
  int max_restarts = 0;         // … of which so many are started again
  std::optional<bool> measure;  // none: where ranks are on several hosts
  std::optional<int> threads;   // none: as OMP_NUM_THREADS says, else a share of this machine's cores
};

// From flags, then RANVIER_* variables, then the file that --config names. None if there is nothing left to do (--help
// was printed). Throws Error{usage}, or Error{config} for a file that cannot be read.
std::optional<Options> parse_options(const cli::Arguments& arguments);

}  // namespace ranvier::train
