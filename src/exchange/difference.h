// An exchange of changes since the last step, by an exchange with error feedback: EF21.
#pragma once

#include <memory>

#include "ranvier/exchange.h"

namespace ranvier {

// `world`: of how many ranks.
std::unique_ptr<Exchange> difference_exchange(std::unique_ptr<Exchange> inner, Rank world);

}  // namespace ranvier
