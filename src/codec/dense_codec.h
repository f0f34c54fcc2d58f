// transform + quantize + code: the pipeline of a whole vector.
#pragma once

#include <memory>

#include "codec/pipeline.h"
#include "codec/stages.h"
#include "ranvier/codec.h"

namespace ranvier {

struct DenseStages {
  std::vector<std::unique_ptr<Transform>> transforms;
  std::unique_ptr<Quantizer> quantizer;
  std::unique_ptr<Coder> coder;  // null: symbols are packed
};
std::unique_ptr<Codec> dense_codec(PipelineSettings settings, DenseStages stages);

}  // namespace ranvier
