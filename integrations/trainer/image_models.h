// Networks that tell images apart.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "integrations/trainer/model_team.h"

namespace ranvier::trainer {

// A part of a network, which works on what the part in front of it has made: where a stage of a pipeline may begin or
// end.
struct Piece {
  std::vector<at::Tensor> parameters;  // in the order in which forward uses them
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<at::Tensor> divided = {};  // those of which other parts of a team hold the rest
};
// n x channels x rows x columns -> n x classes: the logarithms of probabilities, but for a constant.
using ImageModel = std::vector<Piece>;

at::Tensor run(std::span<const Piece> pieces, at::Tensor x);
std::vector<at::Tensor> parameters_of(std::span<const Piece> pieces);
// Those of them that are not divided.
std::vector<at::Tensor> whole_parameters_of(std::span<const Piece> pieces);

struct ImageShape {
  std::int64_t channels = 1;
  std::int64_t rows = 28;
  std::int64_t columns = 28;
  std::int64_t classes = 10;
};

// "cnn", "mlp" or "resnet", with first weights from torch's generator. Of a team that divides matrices the full layers
// are those of this part, cut out of what the whole model would begin with; `team` outlives the model.
ImageModel make_image_model(std::string_view name, const ImageShape& shape, ModelTeam& team);

}  // namespace ranvier::trainer
