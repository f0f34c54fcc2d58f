#include "ranvier/sync.h"

namespace ranvier {

void take_outer_step(const OuterStep& step, std::span<float> change, std::span<float> momentum) {
  const auto decay = static_cast<float>(step.momentum);
  const auto shrink = static_cast<float>(1 / step.unit);
  const auto rate = static_cast<float>(step.rate * step.unit);
  for (std::size_t i = 0; i < change.size(); ++i) {
    const float gradient = change[i] * shrink;
    momentum[i] = decay * momentum[i] + gradient;
    change[i] = rate * (step.nesterov ? gradient + decay * momentum[i] : momentum[i]);
  }
}

}  // namespace ranvier
