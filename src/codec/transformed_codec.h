// transform + sparsify + …: the largest coefficients of a transform of the whole vector instead of the largest values.
#pragma once

#include <memory>

#include "codec/pipeline.h"
#include "codec/stages.h"
#include "ranvier/codec.h"

namespace ranvier {

// `coefficients` codes what the transform makes of the values, without memory; error feedback is of the values.
std::unique_ptr<Codec> transformed_codec(PipelineSettings settings, std::unique_ptr<Transform> transform,
                                         std::unique_ptr<Codec> coefficients);

}  // namespace ranvier
