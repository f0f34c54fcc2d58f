// What networks are put together from: tensors with first weights, drawn from torch's generator. Only the few operators
// that are needed, and not torch/nn.h: that alone takes a minute and 2 GB to compile.
#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <vector>

namespace ranvier::trainer {

// Uniform within 1/sqrt(inputs), as torch's Linear, Conv2d and LSTM draw theirs.
at::Tensor uniform_weights(at::IntArrayRef sizes, double inputs);
// Normally distributed around 0.
at::Tensor normal_weights(at::IntArrayRef sizes, double deviation);
// All the same.
at::Tensor constant_weights(at::IntArrayRef sizes, double value);

// A weight and a bias, as torch's own Linear and Conv2d have them.
struct Layer {
  at::Tensor weight;
  at::Tensor bias;

  explicit Layer(at::IntArrayRef sizes);
  // The same values, of which no gradient is wanted.
  Layer fixed() const { return Layer(weight.detach(), bias.detach()); }
  // Of a full layer so many outputs from the first on, in each of some equal groups of them, with their biases; so many
  // inputs, with all biases.
  Layer outputs(std::int64_t first, std::int64_t count, std::int64_t groups = 1) const;
  Layer inputs(std::int64_t first, std::int64_t count) const;

 private:
  Layer(at::Tensor own_weight, at::Tensor own_bias) : weight(std::move(own_weight)), bias(std::move(own_bias)) {}
};

// What a full layer makes of x: torch's Linear.
at::Tensor linear(const at::Tensor& x, const Layer& layer);

// A scale and a shift of each channel, behind a normalization: 1 and 0 at first.
struct Affine {
  at::Tensor scale;
  at::Tensor shift;
  explicit Affine(std::int64_t channels)
      : scale(constant_weights({channels}, 1)), shift(constant_weights({channels}, 0)) {}
};

inline void append(std::vector<at::Tensor>& all, const Layer& layer) {
  all.insert(all.end(), {layer.weight, layer.bias});
}
inline void append(std::vector<at::Tensor>& all, const Affine& affine) {
  all.insert(all.end(), {affine.scale, affine.shift});
}

}  // namespace ranvier::trainer
