// `ranvier bench --tune`: which algorithm is the fastest at which size, measured and written down.
#pragma once

#include "bench/options.h"
#include "bench/tuning_file.h"
#include "bench/world.h"

namespace ranvier::bench {

// Times every algorithm that builds the collective at every size, prints what it finds, and completes the file. Returns
// the exit code: 1 if a result was wrong.
int tune(const Options&, World&, const TuningFile&);

}  // namespace ranvier::bench
