// Quantizers whose values lie on a grid of equal steps; they differ in how far the grid reaches.
#pragma once

#include <memory>
#include <string_view>

#include "codec/stages.h"
#include "kernel/grid.h"

namespace ranvier {

enum class GridReach : std::uint8_t {
  largest,  // the largest magnitude of the block
  l2_norm,  // the Euclidean norm of the block
  clipped   // 2.5 standard deviations of the block, or its largest magnitude if that is less
};

std::unique_ptr<Quantizer> grid_quantizer(const kernel::Grid&, GridReach);
// Of a stage: its settings `block=`, `rounding=nearest|stochastic` (by default `rounding`) and `norm=max|l2`. Nearest
// rounding is biased.
void add_grid(Parameters&, Draft&, int limit, std::size_t block, std::string_view rounding);

}  // namespace ranvier
