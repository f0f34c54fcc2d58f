// How many letters two words differ by.
#pragma once

#include <cstddef>
#include <string_view>

namespace ranvier {

// Letters to leave out, to put in, to replace or to swap with their neighbour.
std::size_t edits(std::string_view from, std::string_view to);

}  // namespace ranvier
