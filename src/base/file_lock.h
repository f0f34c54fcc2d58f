// Locks on files (flock) that are waited for no longer than the caller says: whoever holds one may be stopped.
#pragma once

#include <chrono>
#include <system_error>

#include "base/socket.h"

namespace ranvier {

// Takes `operation`, LOCK_SH or LOCK_EX, on an open file, as which it ends. The reason where that cannot be; timed_out
// where others have held it until `deadline`.
std::error_code lock_until(const Fd& file, int operation, std::chrono::steady_clock::time_point deadline);

}  // namespace ranvier
