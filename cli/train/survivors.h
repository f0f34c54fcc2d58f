// How workers of one host that have lost others agree on who is left, and meet again.
#pragma once

#include <chrono>

#include "base/socket.h"
#include "launch.h"
#include "ranvier/error.h"

namespace ranvier::train {

// Shows that the worker of this place lives: for as long as its process does, whatever ends it.
class SignOfLife {
 public:
  // Throws Error{config} where it cannot be given.
  explicit SignOfLife(const cli::WorldPlace& place);

 private:
  Fd file_;  // locked
};

// Whether others are gone, or say so, and it is not this worker that cannot go on.
bool is_loss(const Error& why);

// All that are left call. Whoever comes first waits for the others of `place` until each has come or is dead, `limit`
// at most, for it may compute and not know yet; and then says who they are. Returns the place of this worker among
// those, who keep their order. `times`: how often this has been done before. Throws Error{peer_lost} where the others
// go on without this one, and Error{timeout} where nobody says who they are.
cli::WorldPlace regroup(const cli::WorldPlace& place, int times, std::chrono::milliseconds limit);

}  // namespace ranvier::train
