// Networks that predict the next character.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "integrations/trainer/dataset.h"

namespace ranvier::trainer {

class TextModel {
 public:
  virtual ~TextModel() = default;
  // n x length numbers of characters -> n x length x characters: of the one behind each, the logarithms of
  // probabilities, but for a constant. Length up to `window`.
  virtual at::Tensor forward(const at::Tensor& text) const = 0;
  // In the order in which forward uses them.
  virtual std::vector<at::Tensor> parameters() const = 0;
};

// "lstm" or "transformer".
std::unique_ptr<TextModel> make_text_model(std::string_view name, std::int64_t characters);

}  // namespace ranvier::trainer
