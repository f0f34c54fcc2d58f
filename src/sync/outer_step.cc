#include "ranvier/sync.h"

namespace ranvier {

void take_outer_step(const OuterStep& step, double learning_rate, std::span<float> change, std::span<float> momentum) {
  // Where the inner rate has fallen to 0, momentum in its units moves nothing: what is left is the plain average.
  if (step.by_learning_rate && learning_rate <= 0) return;
  const double scale = step.by_learning_rate ? learning_rate : 1;
  const auto decay = static_cast<float>(step.momentum);
  const auto shrink = static_cast<float>(1 / scale);
  const auto rate = static_cast<float>(step.rate * scale);
  for (std::size_t i = 0; i < change.size(); ++i) {
    const float gradient = change[i] * shrink;
    momentum[i] = decay * momentum[i] + gradient;
    change[i] = rate * (step.nesterov ? gradient + decay * momentum[i] : momentum[i]);
  }
}

}  // namespace ranvier
