// sparsify + …: a few values of a vector, their indices, and a pipeline for those values.
#pragma once

#include <memory>

#include "codec/pipeline.h"
#include "codec/stages.h"
#include "ranvier/codec.h"

namespace ranvier {

// `values` codes the chosen ones.
std::unique_ptr<Codec> sparse_codec(PipelineSettings settings, std::shared_ptr<const Sparsifier> sparsifier,
                                    std::shared_ptr<const Codec> values);

}  // namespace ranvier
