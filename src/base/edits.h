// How many letters two words differ by.
#pragma once

#include <cstddef>
#include <string_view>

namespace ranvier {

// Levenshtein's distance: letters to leave out, to put in or to replace.
std::size_t edits(std::string_view from, std::string_view to);

}  // namespace ranvier
