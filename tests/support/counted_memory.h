// What a program holds by operator new, of all its threads: programs that are built with counted_memory.cc have one
// that counts. Memory of malloc and mmap is not in it.
#pragma once

#include <cstddef>

namespace ranvier::support {

std::size_t held_bytes();
// The most since restart_most_held().
std::size_t most_held_bytes();
void restart_most_held();

}  // namespace ranvier::support
