// The file that `ranvier bench --tune` completes: a table (ranvier/tuning.h) that people read and write in, too.
#pragma once

#include <string>
#include <vector>

#include "output.h"
#include "ranvier/tuning.h"

namespace ranvier::bench {

class TuningFile {
 public:
  // Throws Error{config} at once if the file holds something else or cannot be written.
  explicit TuningFile(const std::string& path);
  // Writes the file anew, as engine::with_rows has it.
  void replace(const std::vector<TuningRow>& rows) const;

 private:
  std::string before_;
  cli::ResultFile file_;
};

}  // namespace ranvier::bench
