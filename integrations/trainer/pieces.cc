#include "integrations/trainer/pieces.h"

#include <algorithm>
#include <utility>

namespace ranvier::trainer {

at::Tensor run(std::span<const Piece> pieces, at::Tensor x) {
  for (const Piece& piece : pieces) x = piece.forward(x);
  return x;
}

std::vector<at::Tensor> parameters_of(std::span<const Piece> pieces) {
  std::vector<at::Tensor> all;
  for (const Piece& piece : pieces) all.insert(all.end(), piece.parameters.begin(), piece.parameters.end());
  return all;
}

std::vector<at::Tensor> whole_parameters_of(std::span<const Piece> pieces) {
  std::vector<at::Tensor> all;
  for (const Piece& piece : pieces)
    for (const auto& each : piece.parameters)
      if (std::none_of(piece.divided.begin(), piece.divided.end(), [&](const auto& cut) { return cut.is_same(each); }))
        all.push_back(each);
  return all;
}

}  // namespace ranvier::trainer
