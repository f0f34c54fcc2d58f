// Codes made by one codec and read by another would be refused at best.
#pragma once

#include <string_view>

#include "ranvier/communicator.h"

namespace ranvier {

// All ranks call. Throws Error{mismatch} that names one with another spec.
void demand_same_spec(std::string_view spec, Communicator& comm);

}  // namespace ranvier
