// The flags of `ranvier train` about synchronization and about clusters of unequal workers.
#pragma once

#include "train/options.h"

namespace ranvier::train {

void add_sync_options(CLI::App& app, trainer::TrainSettings& run);
// Once the flags are read. Throws Error{usage} for what makes no sense together or with options.workers.
void check_sync_options(const CLI::App& app, Options& options);
// Throws Error{usage} for slow workers that there are not, and for speeds of some only.
void check_unequal(const trainer::TrainSettings& run, Rank workers);

}  // namespace ranvier::train
