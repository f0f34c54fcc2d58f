// Networks that tell images apart.
#pragma once

#include <cstdint>
#include <string_view>

#include "integrations/trainer/model_team.h"
#include "integrations/trainer/pieces.h"

namespace ranvier::trainer {

struct ImageShape {
  std::int64_t channels = 1;
  std::int64_t rows = 28;
  std::int64_t columns = 28;
  std::int64_t classes = 10;
};

// "cnn", "mlp" or "resnet", with first weights from torch's generator: n x channels x rows x columns -> n x classes,
// the logarithms of probabilities, but for a constant. Of a team that divides matrices the full layers are those of
// this part, cut out of what the whole model would begin with; `team` outlives the model.
Pieces make_image_model(std::string_view name, const ImageShape& shape, ModelTeam& team);

}  // namespace ranvier::trainer
