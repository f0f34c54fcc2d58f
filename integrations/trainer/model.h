// The networks that can be trained.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace ranvier::trainer {

class Model {
 public:
  virtual ~Model() = default;
  // n x 1 x rows x columns -> n x classes: the logarithms of probabilities, but for a constant.
  virtual at::Tensor forward(const at::Tensor& images) const = 0;
  // In the order in which forward uses them.
  virtual std::vector<at::Tensor> parameters() const = 0;
};

struct ImageShape {
  std::int64_t rows = 28;
  std::int64_t columns = 28;
  std::int64_t classes = 10;
};

// One of model_names(), with weights drawn from torch's generator. Throws Error{usage} for another name.
std::unique_ptr<Model> make_model(std::string_view name, const ImageShape& shape);

}  // namespace ranvier::trainer
