#include "integrations/trainer/examples.h"

#include <ATen/ops/cross_entropy_loss.h>

namespace ranvier::trainer {

at::Tensor loss_of(const at::Tensor& outputs, const at::Tensor& wanted) {
  return at::cross_entropy_loss(outputs.flatten(0, -2), wanted);
}

void add_scores(const at::Tensor& outputs, const at::Tensor& wanted, std::span<double> sums) {
  const auto scores = outputs.flatten(0, -2);
  const auto count = static_cast<double>(wanted.numel());
  sums[0] += count;
  sums[1] += scores.argmax(1).eq(wanted).sum().item<double>();
  sums[2] += at::cross_entropy_loss(scores, wanted).item<double>() * count;
}

}  // namespace ranvier::trainer
