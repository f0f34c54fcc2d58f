// Networks as pieces in a row.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <vector>

namespace ranvier::trainer {

// A part of a network, which works on what the part in front of it has made: where a stage of a pipeline may begin or
// end.
struct Piece {
  std::vector<at::Tensor> parameters;  // in the order in which forward uses them
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<at::Tensor> divided = {};  // those of which other parts of a team hold the rest
};
using Pieces = std::vector<Piece>;

at::Tensor run(std::span<const Piece> pieces, at::Tensor x);
std::vector<at::Tensor> parameters_of(std::span<const Piece> pieces);
// Those of them that are not divided.
std::vector<at::Tensor> whole_parameters_of(std::span<const Piece> pieces);

}  // namespace ranvier::trainer
