#pragma once

#include <memory>

#include "codec/pipeline.h"

namespace ranvier {

// `type`: f32, or bf16 after rounding to it.
std::unique_ptr<Codec> lossless_codec(PipelineSettings settings, DType type);

}  // namespace ranvier
