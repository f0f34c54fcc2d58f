// The file that `ranvier bench --tune` completes: a table (ranvier/tuning.h) that people read and write in, too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "output.h"
#include "ranvier/tuning.h"

namespace ranvier::bench {

class TuningFile {
 public:
  // Throws Error{config} at once if the file holds something else or cannot be written.
  explicit TuningFile(const std::string& path);
  // Writes the file anew, as with_rows has it.
  void replace(const std::vector<TuningRow>& rows) const;

 private:
  std::string before_;
  cli::ResultFile file_;
};

// The table `text` with `rows`, all of one kind, in the place of its rows of that kind, as TuningTable::replace has it.
// Other lines stay as they are. So do comments above a row or behind it; where that row was replaced, they go to the
// one that has its size now.
std::string with_rows(std::string_view text, const std::vector<TuningRow>& rows);

}  // namespace ranvier::bench
