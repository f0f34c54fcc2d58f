// Whether this process was forked off: a process group cannot follow there.
#pragma once

#include "ranvier/types.h"

namespace ranvier::pytorch {

// How many forks lie between the process that called this first and the one that calls it now. Costs one load.
unsigned forks();

// Throws c10::ValueError where this process was forked off after `then`, which forks() gave when rank `rank` made its
// group.
void require_no_fork_since(unsigned then, Rank rank);

}  // namespace ranvier::pytorch
