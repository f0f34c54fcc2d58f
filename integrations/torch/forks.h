// Whether this process was forked off: a process group cannot follow there.
#pragma once

namespace ranvier::pytorch {

// How many forks lie between the process that called this first and the one that calls it now. Costs one load.
unsigned forks();

}  // namespace ranvier::pytorch
