// What --record writes.
#pragma once

#include <filesystem>

#include "train/report.h"

namespace ranvier::train {

// The file of --record: DIR/workload.toml.
std::filesystem::path workload_file(const std::filesystem::path& folder);
void write_workload(const Report&);

}  // namespace ranvier::train
