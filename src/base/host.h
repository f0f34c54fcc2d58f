// Which host this is.
#pragma once

#include <string>

namespace ranvier {

// Of the kernel since it started; empty where /proc tells nothing.
std::string boot_id();
// Equal for two processes if and only if 127.0.0.1 of one is 127.0.0.1 of the other: this boot and network namespace.
// Clones of a machine that runs have it in common, so it is where to try first and no more. Empty where /proc tells
// nothing.
std::string host_identity();

}  // namespace ranvier
