// How fast codecs are on this machine, for predictions.
#pragma once

#include <string_view>

#include "ranvier/plan.h"

namespace ranvier::planning {

// Encodes and decodes values like gradients; the best of a few samples, since other programs only ever slow it down.
// Throws Error{usage} for an unknown spec.
CodecSpeed measure_codec(std::string_view spec);

}  // namespace ranvier::planning
