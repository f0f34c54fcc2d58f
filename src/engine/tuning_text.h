// A tuning table (ranvier/tuning.h) as a text that people read and write in, too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ranvier/tuning.h"

namespace ranvier::engine {

// The table `text` with `rows`, all of one kind, in the place of its rows of that kind, as TuningTable::replace has it.
// Other lines stay as they are. So do comments above a row or behind it; where that row was replaced, they go to the
// one that has its size now.
std::string with_rows(std::string_view text, const std::vector<TuningRow>& rows);

}  // namespace ranvier::engine
