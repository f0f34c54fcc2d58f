// The models that can be trained, by name.
#pragma once

#include <span>
#include <string_view>

#include "integrations/trainer/dataset.h"

namespace ranvier::trainer {

// What --model may say.
std::span<const std::string_view> model_names();
bool learns_text(std::string_view model);
// Throws Error{usage} for a name that is none of them, and for a model that does not learn from such data.
void check_model(std::string_view model, const Dataset& data);

}  // namespace ranvier::trainer
