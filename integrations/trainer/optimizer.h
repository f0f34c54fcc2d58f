// What turns gradients into a step of the parameters, both flat: SGD with momentum, AdamW, and the two that scale each
// tensor's step by its norm, for large batches.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ranvier/exchange.h"

namespace ranvier::trainer {

struct OptimizerSettings {
  std::string_view name = "sgd";
  double momentum = 0.9;  // sgd, lars; of adamw and lamb the first moment's decay, beside 0.999 for the second
  double weight_decay = 0;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step(at::Tensor& parameters, const at::Tensor& gradients, double learning_rate) = 0;
  // All that it keeps, one run of memory, zero at first: for checkpoints.
  virtual at::Tensor& state() = 0;
};

// `shapes`: the tensors of the flat parameters, in their order; rates that go by tensor need them.
// Throws Error{usage} for a name that is none of optimizer_names() (integrations/trainer/trainer.h).
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSettings& settings, const at::Tensor& parameters,
                                          const std::vector<Tensor>& shapes);

}  // namespace ranvier::trainer
