// The state of a training run in one file: enough to go on as if it had never stopped, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ranvier::trainer {

// What must be the same for a run to be continued: model, data, batch, …, by name. All of it stands in the file.
using Identity = std::map<std::string, std::string>;

struct Checkpoint {
  Identity identity;
  std::uint64_t step = 0;   // completed since the start of training
  double seconds = 0;       // of training, up to here
  std::string tuning = {};  // what "auto" chose by, as TuningTable::text: other choices would add in another order
  std::vector<float> parameters;
  std::vector<float> momentum;  // all that the optimizer keeps: one or two floats for a parameter, and a few
  std::vector<std::vector<std::byte>> rank_state = {};  // what each rank has of its own: a codec's residuals, a replica
};

// Replaces `path` whole or leaves it as it was; links, devices and pipes stay (base/whole_file.h). Throws Error{config}
// when it cannot be written.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);
// Throws Error{config} where save_checkpoint could not write.
void check_checkpoint_place(const std::filesystem::path& path);
// Throws Error{config} for a file that is missing, damaged or something else than a checkpoint of ranvier.
Checkpoint load_checkpoint(const std::filesystem::path& path);
// Throws Error{config} naming what differs.
void check_identity(const std::filesystem::path& path, const Checkpoint& checkpoint, const Identity& identity);

// --save may name a folder; the checkpoint then is this file in it.
std::filesystem::path checkpoint_file(const std::filesystem::path& file_or_folder);

}  // namespace ranvier::trainer
