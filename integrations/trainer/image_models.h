// Networks that tell images apart.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace ranvier::trainer {

class ImageModel {
 public:
  virtual ~ImageModel() = default;
  // n x channels x rows x columns -> n x classes: the logarithms of probabilities, but for a constant.
  virtual at::Tensor forward(const at::Tensor& images) const = 0;
  // In the order in which forward uses them.
  virtual std::vector<at::Tensor> parameters() const = 0;
};

struct ImageShape {
  std::int64_t channels = 1;
  std::int64_t rows = 28;
  std::int64_t columns = 28;
  std::int64_t classes = 10;
};

// "cnn", "mlp" or "resnet".
std::unique_ptr<ImageModel> make_image_model(std::string_view name, const ImageShape& shape);

}  // namespace ranvier::trainer
