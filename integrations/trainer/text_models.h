// Networks that predict the next character.
#pragma once

#include <cstdint>
#include <string_view>

#include "integrations/trainer/model_team.h"
#include "integrations/trainer/pieces.h"

namespace ranvier::trainer {

// "lstm" or "transformer", with first weights from torch's generator: n x length numbers of characters -> n x length x
// characters: of the one behind each, the logarithms of probabilities, but for a constant. Length up to `window`. Of a
// team that divides matrices the transformer's are those of this part, cut out of what the whole model would begin
// with; `team` outlives the model.
Pieces make_text_model(std::string_view name, std::int64_t characters, ModelTeam& team);

}  // namespace ranvier::trainer
