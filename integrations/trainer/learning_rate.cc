#include "integrations/trainer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ranvier::trainer {

double LearningRate::at(double step) const {
  if (step < warm_up) return first + (peak - first) * (step + 1) / (warm_up + 1);
  const double all = std::max(steps - warm_up, 1.0);
  return peak / 2 * (1 + std::cos(std::numbers::pi * (step - warm_up) / all));
}

LearningRate scaled_linearly(double rate, double samples, double reference) {
  return {.peak = rate * samples / reference, .first = rate};
}

}  // namespace ranvier::trainer
