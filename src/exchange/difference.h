// An exchange of changes since the last step, by an exchange with error feedback: EF21.
#pragma once

#include <memory>

#include "ranvier/exchange.h"

namespace ranvier {

std::unique_ptr<Exchange> difference_exchange(std::unique_ptr<Exchange> inner);

}  // namespace ranvier
