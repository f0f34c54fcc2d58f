// Settings by name, as environment variables and the Python package carry them, to the options of a communicator.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ranvier/communicator.h"

namespace ranvier::pytorch {

using Setting = std::pair<std::string, std::string>;

// Names: transport, algorithm, interface, link_rate ("200Mbit"), timeout_ms, join_timeout_ms, suspect_after_ms,
// dead_after_ms. Throws Error{config} naming the setting whose name or value is wrong.
CommunicatorOptions options_from(const std::vector<Setting>& settings);

}  // namespace ranvier::pytorch
