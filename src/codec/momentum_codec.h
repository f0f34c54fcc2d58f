// momentum= on a stage: error feedback that knows of momentum.
#pragma once

#include <memory>

#include "ranvier/codec.h"

namespace ranvier {

// `inner` has error feedback. 0 < momentum < 1.
std::unique_ptr<Codec> momentum_codec(std::unique_ptr<Codec> inner, double momentum);

}  // namespace ranvier
