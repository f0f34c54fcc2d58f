// Quantizers whose values lie on a grid of equal steps; they differ in how far the grid reaches.
#pragma once

#include <memory>

#include "codec/stages.h"
#include "kernel/grid.h"

namespace ranvier {

enum class GridReach : std::uint8_t {
  largest,  // the largest magnitude of the block
  l2_norm,  // the Euclidean norm of the block
  clipped   // 2.5 standard deviations of the block, or its largest magnitude if that is less
};

std::unique_ptr<Quantizer> grid_quantizer(const kernel::Grid&, GridReach);
// The setting `norm=max|l2` of a stage.
GridReach reach_of(Parameters&);

}  // namespace ranvier
