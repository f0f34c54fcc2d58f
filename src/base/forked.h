// Processes that are forked off, such as a data loader's workers. They have all descriptors of the one that they come
// from, and a connection ends for its other side only when nobody has it open any more: the death of a rank would not
// be noticed while such a child of it lives.
#pragma once

namespace ranvier {

// Closed at once in every process that is forked off from now on, until keep_in_forked. Descriptors from 65,536 on are
// not.
void close_in_forked(int descriptor);
// To be said before it is closed here: its number may then be somebody else's.
void keep_in_forked(int descriptor);

}  // namespace ranvier
