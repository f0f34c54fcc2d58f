// Settings by name, as the Python package hands them over, to the options of a communicator.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ranvier/communicator.h"

namespace ranvier::pytorch {

using Setting = std::pair<std::string, std::string>;

// Environment variables under their own names: RANVIER_TRANSPORT, RANVIER_ALGORITHM, RANVIER_INTERFACE,
// RANVIER_SOCKETS, RANVIER_LINK_RATE ("200Mbit"), RANVIER_DEAD_AFTER_MS; and what init_process_group was given:
// timeout_ms, join_timeout_ms. Throws Error{config} naming the setting whose name or value is wrong.
CommunicatorOptions options_from(const std::vector<Setting>& settings);

}  // namespace ranvier::pytorch
