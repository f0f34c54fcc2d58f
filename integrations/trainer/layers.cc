#include "integrations/trainer/layers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>

#include <cmath>

namespace ranvier::trainer {

at::Tensor uniform_weights(at::IntArrayRef sizes, double inputs) {
  const double bound = 1 / std::sqrt(inputs);
  return at::empty(sizes).uniform_(-bound, bound).set_requires_grad(true);
}
at::Tensor normal_weights(at::IntArrayRef sizes, double deviation) {
  return at::empty(sizes).normal_(0, deviation).set_requires_grad(true);
}
at::Tensor constant_weights(at::IntArrayRef sizes, double value) {
  return at::full(sizes, value).set_requires_grad(true);
}

namespace {

at::Tensor begin_with(const at::Tensor& values) {
  return values.detach().clone(at::MemoryFormat::Contiguous).set_requires_grad(true);
}

}  // namespace

Layer Layer::outputs(std::int64_t first, std::int64_t count, std::int64_t groups) const {
  const auto of_each = [&](const at::Tensor& all) {
    return begin_with(all.unflatten(0, {groups, -1}).narrow(1, first, count).flatten(0, 1));
  };
  return {of_each(weight), of_each(bias)};
}
Layer Layer::inputs(std::int64_t first, std::int64_t count) const {
  return {begin_with(weight.narrow(1, first, count)), bias};
}

Layer::Layer(at::IntArrayRef sizes) {
  double inputs = 1;
  for (std::size_t i = 1; i < sizes.size(); ++i) inputs *= static_cast<double>(sizes[i]);
  weight = uniform_weights(sizes, inputs);
  bias = uniform_weights({sizes[0]}, inputs);
}

at::Tensor linear(const at::Tensor& x, const Layer& layer) { return at::linear(x, layer.weight, layer.bias); }

}  // namespace ranvier::trainer
