// How workers that have lost others agree on who is left, and meet again.
#pragma once

#include <chrono>

#include "launch.h"
#include "ranvier/communicator.h"
#include "ranvier/error.h"

namespace ranvier::train {

// Whose loss it is that training has ended for on this worker, as its communicator of all workers has it, which hears
// of a loss within `dead_after`. Throws `why` where it is none.
Error loss_of(Communicator& comm, const Error& why, std::chrono::milliseconds dead_after);

// All that are left call, each with what it ended for. Whoever comes first waits at most `limit` for the others of
// `place`, but not for the one that `why` names, and says who they are. Returns the place of this worker among those,
// who keep their order. `times`: how often this has been done before. Throws Error{peer_lost} where the others go on
// without this one, and Error{timeout} where nobody says who they are.
cli::WorldPlace regroup(const cli::WorldPlace& place, const Error& why, int times, std::chrono::milliseconds limit);

}  // namespace ranvier::train
