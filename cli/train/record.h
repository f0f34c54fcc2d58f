// What --record writes.
#pragma once

#include <filesystem>

#include "train/report.h"

namespace ranvier::train {

// What is written: DIR/workload.toml.
std::filesystem::path workload_file(const std::filesystem::path& folder);

// Throws Error{config} where write_workload could not make DIR or write to it. Makes nothing.
void check_record_folder(const std::filesystem::path& folder);
// Makes DIR.
void write_workload(const Report&);

}  // namespace ranvier::train
