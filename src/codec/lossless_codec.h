#pragma once

#include <memory>
#include <string>

#include "ranvier/codec.h"

namespace ranvier {

// `type`: f32, or bf16 after rounding to it.
std::unique_ptr<Codec> lossless_codec(std::string spec, DType type);

}  // namespace ranvier
