// TernGrad: -1, 0 or 1 times a scale, at random so that the expectation is the value. Wen et al., "TernGrad: Ternary
// Gradients to Reduce Communication in Distributed Deep Learning", NIPS 2017 (arXiv:1705.07878).
//
// The scale is the largest magnitude of a block after clipping it at 2.5 standard deviations, as in the paper; what is
// clipped is lost (clip=0 keeps it and is unbiased). The error is far larger than the value: no error feedback, which
// would not converge.
#include "codec/grid.h"

namespace ranvier {

void add_terngrad(Parameters& parameters, Draft& draft) {
  const bool clip = parameters.count("clip", 1, 0, 1) != 0;
  draft.quantizer = grid_quantizer({.block = parameters.block(1024), .limit = 1, .stochastic = true},
                                   clip ? GridReach::clipped : GridReach::largest);
}

}  // namespace ranvier
