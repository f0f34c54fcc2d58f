// sparsify + …: a few values of a vector, their indices, and a pipeline for those values.
#pragma once

#include <memory>
#include <string>

#include "codec/stages.h"
#include "ranvier/codec.h"

namespace ranvier {

// `values` codes the chosen ones.
std::unique_ptr<Codec> sparse_codec(std::string spec, std::shared_ptr<const Sparsifier> sparsifier,
                                    std::shared_ptr<const Codec> values, bool feedback);

}  // namespace ranvier
