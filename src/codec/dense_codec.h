// transform + quantize + code: the pipeline of a whole vector.
#pragma once

#include <memory>

#include "codec/pipeline.h"
#include "codec/stages.h"
#include "ranvier/codec.h"

namespace ranvier {

// A value of more than this has no code: there squares and sums of blocks would leave the range of f32.
inline constexpr float largest_codable = 0x1p50F;

struct DenseStages {
  std::vector<std::unique_ptr<Transform>> transforms;
  std::unique_ptr<Quantizer> quantizer;
  std::unique_ptr<Coder> coder;  // null: symbols are packed
};
std::unique_ptr<Codec> dense_codec(PipelineSettings settings, DenseStages stages);

}  // namespace ranvier
