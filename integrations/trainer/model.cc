// Only the few operators that are needed, and not torch/nn.h: that alone takes a minute and 2 GB to compile.
#include "integrations/trainer/model.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <array>
#include <cmath>

#include "integrations/trainer/trainer.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::trainer {
namespace {

// A weight and a bias, drawn as torch's own Linear and Conv2d draw theirs: uniform within 1/sqrt(inputs of an output).
struct Layer {
  at::Tensor weight;
  at::Tensor bias;

  explicit Layer(at::IntArrayRef sizes) : weight(at::empty(sizes)), bias(at::empty({sizes[0]})) {
    const double bound = 1 / std::sqrt(static_cast<double>(weight.numel() / sizes[0]));
    for (auto* tensor : {&weight, &bias}) tensor->uniform_(-bound, bound).set_requires_grad(true);
  }
};

// LeNet's shape (LeCun et al., 1998) with today's rectifiers: two convolutions of 3 x 3 with pooling, two full layers.
// 102,130 parameters for images of 28 x 28 and 10 classes.
class Cnn final : public Model {
 public:
  explicit Cnn(const ImageShape& shape)
      : full1_({120, 32 * pooled(shape.rows) * pooled(shape.columns)}), full2_({shape.classes, 120}) {}

  at::Tensor forward(const at::Tensor& images) const override {
    auto x = at::max_pool2d(at::relu(at::conv2d(images, conv1_.weight, conv1_.bias)), 2);
    x = at::max_pool2d(at::relu(at::conv2d(x, conv2_.weight, conv2_.bias)), 2);
    x = at::relu(at::linear(x.flatten(1), full1_.weight, full1_.bias));
    return at::linear(x, full2_.weight, full2_.bias);
  }
  std::vector<at::Tensor> parameters() const override {
    return {conv1_.weight, conv1_.bias, conv2_.weight, conv2_.bias,
            full1_.weight, full1_.bias, full2_.weight, full2_.bias};
  }

 private:
  // What two convolutions without padding and two poolings leave of a side.
  static std::int64_t pooled(std::int64_t side) { return ((side - 2) / 2 - 2) / 2; }

  Layer conv1_{{16, 1, 3, 3}};
  Layer conv2_{{32, 16, 3, 3}};
  Layer full1_;
  Layer full2_;
};

class Mlp final : public Model {
 public:
  explicit Mlp(const ImageShape& shape) : full1_({128, shape.rows * shape.columns}), full2_({shape.classes, 128}) {}

  at::Tensor forward(const at::Tensor& images) const override {
    const auto x = at::relu(at::linear(images.flatten(1), full1_.weight, full1_.bias));
    return at::linear(x, full2_.weight, full2_.bias);
  }
  std::vector<at::Tensor> parameters() const override {
    return {full1_.weight, full1_.bias, full2_.weight, full2_.bias};
  }

 private:
  Layer full1_;
  Layer full2_;
};

template <class Kind>
std::unique_ptr<Model> make(const ImageShape& shape) {
  return std::make_unique<Kind>(shape);
}

struct Maker {
  std::string_view name;
  std::unique_ptr<Model> (*make)(const ImageShape&);
};
constexpr std::array makers{Maker{"cnn", make<Cnn>}, Maker{"mlp", make<Mlp>}};

}  // namespace

std::span<const std::string_view> model_names() {
  static constexpr auto names = [] {
    std::array<std::string_view, makers.size()> list;
    for (std::size_t i = 0; i < makers.size(); ++i) list[i] = makers[i].name;
    return list;
  }();
  return names;
}

std::unique_ptr<Model> make_model(std::string_view name, const ImageShape& shape) {
  for (const auto& maker : makers)
    if (maker.name == name) return maker.make(shape);
  throw Error(ErrorKind::usage, unknown_name("model", name, model_names()));
}

}  // namespace ranvier::trainer
