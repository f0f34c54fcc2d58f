// Random bytes that nobody can guess, and their text.
#pragma once

#include <string>
#include <string_view>

#include "ranvier/types.h"

namespace ranvier {

// From the kernel's generator.
void fill_with_random(Bytes);

// Two digits a byte: "00ff".
std::string hex(ConstBytes);
// Whether `digits` are those of exactly `into.size()` bytes, which they become.
bool parse_hex(std::string_view digits, Bytes into);

}  // namespace ranvier
