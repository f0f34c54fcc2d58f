// Processes that are forked off, such as a data loader's workers. They have all descriptors of the one that they come
// from, and a connection ends for its other side only when nobody has it open any more: the death of a rank would not
// be noticed while such a child of it lives.
#pragma once

#include <atomic>

namespace ranvier {

inline std::atomic<unsigned> times_forked = 0;  // counted once anybody has called forks_from_now()

// How many forks there are between this process and where counting began: not getpid(), which is a system call.
inline unsigned forks() { return times_forked.load(std::memory_order_relaxed); }
unsigned forks_from_now();

// Closed at once in every process that is forked off from now on, until keep_in_forked. Descriptors from 65,536 on are
// not.
void close_in_forked(int descriptor);
// To be said before it is closed here: its number may then be somebody else's.
void keep_in_forked(int descriptor);

}  // namespace ranvier
