// Checkpoints of a run of several ranks: rank 0 reads and writes the file, and what is in it becomes everybody's. Of a
// divided model each part's first replica hands over what rank 0 does not hold: one file, which is there whole or not
// at all, where parts apart could be of different steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "integrations/trainer/checkpoint.h"
#include "integrations/trainer/model_team.h"

namespace ranvier::trainer {

// Where training is, beside its memory.
struct Progress {
  std::size_t step = 0;
  double seconds = 0;
  std::string tuning = {};          // what "auto" algorithms go by, as TuningTable::text
  std::vector<std::byte> own = {};  // of this rank alone
};

// The floats that a checkpoint holds of the first replica, or of a part of it.
struct CheckpointMemory {
  std::span<float> parameters;
  std::span<float> optimizer;
};

// The first replica's memory becomes everybody's, part by part: as the file has it, or, where `file` is empty, as it
// is. All ranks call. Throws Error{config} for a file of another run.
Progress begin_from(const std::filesystem::path& file, const Identity& identity, const CheckpointMemory& memory,
                    ModelTeam& team);
// All ranks call, each with its own Progress::own. Does nothing where `file` is empty.
void save_to(const std::filesystem::path& file, const Identity& identity, const CheckpointMemory& memory,
             Progress progress, ModelTeam& team);

}  // namespace ranvier::trainer
