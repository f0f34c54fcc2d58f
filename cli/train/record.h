// What --record writes.
#pragma once

#include <filesystem>

#include "train/report.h"

namespace ranvier::train {

// Throws Error{config} where write_workload could not make DIR or write to it. Makes nothing.
void check_record_folder(const std::filesystem::path& folder);
// To DIR/workload.toml; makes DIR.
void write_workload(const Report&);

}  // namespace ranvier::train
