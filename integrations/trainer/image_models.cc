#include "integrations/trainer/image_models.h"

#include <ATen/ops/conv2d.h>
#include <ATen/ops/group_norm.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>

#include <array>
#include <cmath>
#include <utility>

#include "integrations/trainer/layer_pair.h"
#include "integrations/trainer/layers.h"

namespace ranvier::trainer {
namespace {

// Two full layers with a rectifier between.
class FullPair {
 public:
  FullPair(std::int64_t inputs, std::int64_t between, std::int64_t outputs, ModelTeam& team)
      : layers_{Layer({between, inputs}), Layer({outputs, between}), between, team} {}  // drawn in this order
  Piece first() const {
    return {{layers_.first().weight, layers_.first().bias},
            [layers = layers_](const at::Tensor& x) { return at::relu(layers.begin(x.flatten(1))); },
            layers_.divided_first()};
  }
  Piece second() const {
    return {{layers_.second().weight, layers_.second().bias},
            [layers = layers_](const at::Tensor& x) { return layers.end(x); },
            layers_.divided_second()};
  }

 private:
  LayerPair layers_;
};

// All channels of a pixel side by side, in which convolutions and poolings of processors take half the time. Of a
// single channel both orders are one, and only a copy says which is meant.
at::Tensor channels_last(const at::Tensor& x) {
  constexpr auto order = at::MemoryFormat::ChannelsLast;
  return x.size(1) == 1 ? x.clone(order) : x.contiguous(order);
}

Piece convolution(at::IntArrayRef sizes) {
  const Layer layer(sizes);
  return {{layer.weight, layer.bias}, [layer](const at::Tensor& x) {
            return at::relu(at::max_pool2d(at::conv2d(channels_last(x), layer.weight, layer.bias), 2));
          }};
}

// LeNet's shape (LeCun et al., 1998) with today's rectifiers: two convolutions of 3 x 3 with pooling, two full layers.
// 102,130 parameters for grey images of 28 x 28 and 10 classes.
Pieces cnn(const ImageShape& shape, ModelTeam& team) {
  // What two convolutions without padding and two poolings leave of a side.
  const auto pooled = [](std::int64_t side) { return ((side - 2) / 2 - 2) / 2; };
  Pieces model{convolution({16, shape.channels, 3, 3}), convolution({32, 16, 3, 3})};
  const FullPair full(32 * pooled(shape.rows) * pooled(shape.columns), 120, shape.classes, team);
  model.insert(model.end(), {full.first(), full.second()});
  return model;
}

Pieces mlp(const ImageShape& shape, ModelTeam& team) {
  const FullPair full(shape.channels * shape.rows * shape.columns, 128, shape.classes, team);
  return {full.first(), full.second()};
}

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

template <class Part>
Piece piece_of(const Part& part) {
  Piece piece{{}, [part](const at::Tensor& x) { return part.forward(x); }};
  part.add_to(piece.parameters);
  return piece;
}

// The residual network for small images of He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR
// 2016, section 4.2, with one block in each of its three stages (n = 1: 8 layers) and group normalization.
Pieces resnet(const ImageShape& shape) {
  const NormalizedConvolution first(shape.channels, 16, 3, 1);
  Piece begin = piece_of(first);
  begin.forward = [first](const at::Tensor& x) { return at::relu(first.forward(x)); };
  Pieces model{std::move(begin)};
  for (const auto& [from, to, stride] :
       std::array<std::array<std::int64_t, 3>, 3>{{{16, 16, 1}, {16, 32, 2}, {32, 64, 2}}})
    model.push_back(piece_of(ResidualBlock(from, to, stride)));
  const Layer full({shape.classes, 64});
  model.push_back({{full.weight, full.bias}, [full](const at::Tensor& x) {
                     return linear(x.mean(at::IntArrayRef{2, 3}), full);
                   }});
  return model;
}

}  // namespace

Pieces make_image_model(std::string_view name, const ImageShape& shape, ModelTeam& team) {
  if (name == "cnn") return cnn(shape, team);
  if (name == "mlp") return mlp(shape, team);
  return resnet(shape);
}

}  // namespace ranvier::trainer
