// `ranvier bench --tune`: which algorithm is the fastest at which size, measured and written down.
#pragma once

#include <string>
#include <vector>

#include "bench/options.h"
#include "bench/world.h"
#include "output.h"
#include "ranvier/tuning.h"

namespace ranvier::bench {

// The table that is to be completed. Throws Error{config} at once if the file holds something else or cannot be
// written.
class TuningFile {
 public:
  explicit TuningFile(const std::string& path);
  void replace(const std::vector<TuningRow>& rows) const;

 private:
  TuningTable before_;
  cli::ResultFile file_;
};

// Times every algorithm that builds the collective at every size, prints what it finds, and completes the file. Returns
// the exit code: 1 if a result was wrong.
int tune(const Options&, World&, const TuningFile&);

}  // namespace ranvier::bench
