#include "ranvier/sync.h"

namespace ranvier {

void take_outer_step(const OuterStep& step, double learning_rate, std::span<float> change, std::span<float> momentum) {
  // A rate that has fallen to 0 has left nothing to divide.
  const double scale = step.by_learning_rate && learning_rate > 0 ? learning_rate : 1;
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
