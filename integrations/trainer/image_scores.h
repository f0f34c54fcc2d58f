// What tasks of telling images apart have in common.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <span>

#include "integrations/trainer/dataset.h"
#include "integrations/trainer/image_models.h"
#include "integrations/trainer/score.h"

namespace ranvier::trainer {

inline constexpr std::int64_t test_piece = 500;  // images at a time

inline ImageShape shape_of(const Images& data) {
  return {.channels = static_cast<std::int64_t>(data.channels),
          .rows = static_cast<std::int64_t>(data.rows),
          .columns = static_cast<std::int64_t>(data.columns),
          .classes = static_cast<std::int64_t>(data.classes)};
}

// How many, how many of them right, and the sum of their losses.
inline void add_scores(const at::Tensor& scores, const at::Tensor& labels, std::span<double> sums) {
  const auto wanted = labels.to(at::kLong);
  const auto count = static_cast<double>(wanted.numel());
  sums[0] += count;
  sums[1] += scores.argmax(1).eq(wanted).sum().item<double>();
  sums[2] += at::cross_entropy_loss(scores, wanted).item<double>() * count;
}
inline Score image_score(std::span<const double> sums) {
  return {.loss = sums[2] / sums[0], .accuracy = sums[1] / sums[0]};
}

}  // namespace ranvier::trainer
