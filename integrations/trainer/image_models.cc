#include "integrations/trainer/image_models.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <cmath>

#include "integrations/trainer/layers.h"

namespace ranvier::trainer {
namespace {

// LeNet's shape (LeCun et al., 1998) with today's rectifiers: two convolutions of 3 x 3 with pooling, two full layers.
// 102,130 parameters for grey images of 28 x 28 and 10 classes.
class Cnn final : public ImageModel {
 public:
  explicit Cnn(const ImageShape& shape)
      : conv1_({16, shape.channels, 3, 3}),
        full1_({120, 32 * pooled(shape.rows) * pooled(shape.columns)}),
        full2_({shape.classes, 120}) {}

  at::Tensor forward(const at::Tensor& images) const override {
    auto x = at::max_pool2d(at::relu(at::conv2d(images, conv1_.weight, conv1_.bias)), 2);
    x = at::max_pool2d(at::relu(at::conv2d(x, conv2_.weight, conv2_.bias)), 2);
    x = at::relu(at::linear(x.flatten(1), full1_.weight, full1_.bias));
    return at::linear(x, full2_.weight, full2_.bias);
  }
  std::vector<at::Tensor> parameters() const override {
    std::vector<at::Tensor> all;
    for (const auto* layer : {&conv1_, &conv2_, &full1_, &full2_}) append(all, *layer);
    return all;
  }

 private:
  // What two convolutions without padding and two poolings leave of a side.
  static std::int64_t pooled(std::int64_t side) { return ((side - 2) / 2 - 2) / 2; }

  Layer conv1_;
  Layer conv2_{{32, 16, 3, 3}};
  Layer full1_;
  Layer full2_;
};

class Mlp final : public ImageModel {
 public:
  explicit Mlp(const ImageShape& shape)
      : full1_({128, shape.channels * shape.rows * shape.columns}), full2_({shape.classes, 128}) {}

  at::Tensor forward(const at::Tensor& images) const override {
    const auto x = at::relu(at::linear(images.flatten(1), full1_.weight, full1_.bias));
    return at::linear(x, full2_.weight, full2_.bias);
  }
  std::vector<at::Tensor> parameters() const override {
    std::vector<at::Tensor> all;
    append(all, full1_);
    append(all, full2_);
    return all;
  }

 private:
  Layer full1_;
  Layer full2_;
};

// A convolution of 3 x 3 without bias and the normalization behind it. Wu and He's groups ("Group Normalization", ECCV
// 2018) instead of batches: an image's result then depends on no other image, so that workers with parts of a batch
// compute what one with the whole would, and there are no running means that an exchange would have to keep.
class NormalizedConvolution {
 public:
  NormalizedConvolution(std::int64_t from, std::int64_t to, std::int64_t side, std::int64_t stride)
      : weight_(normal_weights({to, from, side, side}, std::sqrt(2.0 / static_cast<double>(to * side * side)))),
        norm_(to),
        stride_(stride),
        padding_(side / 2) {}
  at::Tensor forward(const at::Tensor& x) const {
    return at::group_norm(at::conv2d(x, weight_, {}, stride_, padding_), 8, norm_.scale, norm_.shift);
  }
  void add_to(std::vector<at::Tensor>& all) const {
    all.push_back(weight_);
    append(all, norm_);
  }

 private:
  at::Tensor weight_;
  Affine norm_;
  std::int64_t stride_;
  std::int64_t padding_;
};

// Two convolutions and a way around them.
class ResidualBlock {
 public:
  ResidualBlock(std::int64_t from, std::int64_t to, std::int64_t stride)
      : first_(from, to, 3, stride), second_(to, to, 3, 1) {
    if (from != to) around_.emplace_back(from, to, 1, stride);
  }
  at::Tensor forward(const at::Tensor& x) const {
    const auto change = second_.forward(at::relu(first_.forward(x)));
    return at::relu(change.add(around_.empty() ? x : around_.front().forward(x)));
  }
  void add_to(std::vector<at::Tensor>& all) const {
    first_.add_to(all);
    second_.add_to(all);
    for (const auto& each : around_) each.add_to(all);
  }

 private:
  NormalizedConvolution first_;
  NormalizedConvolution second_;
  std::vector<NormalizedConvolution> around_;  // one, where the number of channels changes
};

// The residual network for small images of He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR
// 2016, section 4.2, with one block in each of its three stages (n = 1: 8 layers) and group normalization.
class ResNet final : public ImageModel {
 public:
  explicit ResNet(const ImageShape& shape) : first_(shape.channels, 16, 3, 1), full_({shape.classes, 64}) {}

  at::Tensor forward(const at::Tensor& images) const override {
    auto x = at::relu(first_.forward(images));
    for (const auto& block : blocks_) x = block.forward(x);
    return at::linear(x.mean(at::IntArrayRef{2, 3}), full_.weight, full_.bias);
  }
  std::vector<at::Tensor> parameters() const override {
    std::vector<at::Tensor> all;
    first_.add_to(all);
    for (const auto& block : blocks_) block.add_to(all);
    append(all, full_);
    return all;
  }

 private:
  NormalizedConvolution first_;
  std::vector<ResidualBlock> blocks_{{16, 16, 1}, {16, 32, 2}, {32, 64, 2}};
  Layer full_;
};

}  // namespace

std::unique_ptr<ImageModel> make_image_model(std::string_view name, const ImageShape& shape) {
  if (name == "cnn") return std::make_unique<Cnn>(shape);
  if (name == "mlp") return std::make_unique<Mlp>(shape);
  return std::make_unique<ResNet>(shape);
}

}  // namespace ranvier::trainer
