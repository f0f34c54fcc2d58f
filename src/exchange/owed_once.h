// For exchanges that hold nothing back: what another codec has held back before, by a checkpoint, goes with the first
// gradients, and is paid.
#pragma once

#include <memory>
#include <string>

#include "ranvier/exchange.h"

namespace ranvier {

// `spec`: what it calls itself. `world`: of how many ranks averages are.
std::unique_ptr<Exchange> owed_once(std::string spec, std::unique_ptr<Exchange> inner, Rank world);

}  // namespace ranvier
