#include "integrations/trainer/optimizer.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <array>
#include <cmath>

#include "integrations/trainer/trainer.h"
#include "ranvier/error.h"
#include "ranvier/text.h"

namespace ranvier::trainer {
namespace {

using Shapes = std::vector<Tensor>;

// Polyak's heavy ball as torch.optim.SGD has it.
class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerSettings& settings, const at::Tensor& parameters, const Shapes&)
      : settings_(settings), momentum_(at::zeros_like(parameters)) {}
  void step(at::Tensor& parameters, const at::Tensor& gradients, double learning_rate) override {
    if (settings_.momentum > 0)
      momentum_.mul_(settings_.momentum).add_(gradients);
    else
      momentum_.copy_(gradients);  // and not 0 * momentum, which would keep a NaN
    if (settings_.weight_decay > 0) momentum_.add_(parameters, settings_.weight_decay);
    parameters.add_(momentum_, -learning_rate);
  }
  at::Tensor& state() override { return momentum_; }

 private:
  const OptimizerSettings settings_;
  at::Tensor momentum_;
};

// Layer-wise rates: a tensor's step is as long as its weights allow, whatever the size of its gradient. You, Gitman and
// Ginsburg, "Large Batch Training of Convolutional Networks", 2017 (arXiv:1708.03888).
class Lars final : public Optimizer {
 public:
  Lars(const OptimizerSettings& settings, const at::Tensor& parameters, const Shapes& shapes)
      : settings_(settings), shapes_(shapes), momentum_(at::zeros_like(parameters)) {}
  void step(at::Tensor& parameters, const at::Tensor& gradients, double learning_rate) override {
    constexpr double trust = 0.001;
    momentum_.mul_(settings_.momentum);
    std::int64_t at = 0;
    for (const Tensor& shape : shapes_) {
      const auto size = static_cast<std::int64_t>(shape.size());
      const auto weights = parameters.narrow(0, at, size);
      auto gradient = gradients.narrow(0, at, size);
      // The paper adds up the norms of gradient and decay, which is not the norm of their sum.
      const double weight_norm = weights.norm().item<double>();
      const double scale = gradient.norm().item<double>() + settings_.weight_decay * weight_norm;
      if (settings_.weight_decay > 0) gradient = gradient.add(weights, settings_.weight_decay);
      const double rate = weight_norm > 0 && scale > 0 ? trust * weight_norm / scale : 1;
      momentum_.narrow(0, at, size).add_(gradient, learning_rate * rate);
      at += size;
    }
    parameters.sub_(momentum_);
  }
  at::Tensor& state() override { return momentum_; }

 private:
  const OptimizerSettings settings_;
  const Shapes shapes_;
  at::Tensor momentum_;
};

// Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019 (arXiv:1711.05101).
class AdamW : public Optimizer {
 public:
  AdamW(const OptimizerSettings& settings, const at::Tensor& parameters, const Shapes&)
      : settings_(settings),
        state_(at::zeros({2 * parameters.numel() + 1})),
        first_(state_.narrow(0, 0, parameters.numel())),
        second_(state_.narrow(0, parameters.numel(), parameters.numel())),
        steps_(state_.narrow(0, 2 * parameters.numel(), 1)) {}
  void step(at::Tensor& parameters, const at::Tensor& gradients, double learning_rate) override {
    const auto direction = next_direction(gradients);
    if (settings_.weight_decay > 0) parameters.mul_(1 - learning_rate * settings_.weight_decay);
    parameters.add_(direction, -learning_rate);
  }
  at::Tensor& state() override { return state_; }

 protected:
  // Kingma and Ba's: the first moment over the root of the second, both as if they had not begun at zero.
  at::Tensor next_direction(const at::Tensor& gradients) {
    const double beta = settings_.momentum;
    first_.mul_(beta).add_(gradients, 1 - beta);
    second_.mul_(second_beta).addcmul_(gradients, gradients, 1 - second_beta);
    steps_.add_(1);
    const auto step = steps_.item<double>();
    const auto root = second_.sqrt().div_(std::sqrt(1 - std::pow(second_beta, step))).add_(1e-8);
    return first_.div(root).div_(1 - std::pow(beta, step));
  }

  static constexpr double second_beta = 0.999;
  const OptimizerSettings settings_;

 private:
  at::Tensor state_;
  at::Tensor first_;
  at::Tensor second_;
  at::Tensor steps_;
};

// AdamW with the rates of LARS. You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 Minutes",
// ICLR 2020 (arXiv:1904.00962).
class Lamb final : public AdamW {
 public:
  Lamb(const OptimizerSettings& settings, const at::Tensor& parameters, const Shapes& shapes)
      : AdamW(settings, parameters, shapes), shapes_(shapes) {}
  void step(at::Tensor& parameters, const at::Tensor& gradients, double learning_rate) override {
    const auto direction = next_direction(gradients);
    if (settings_.weight_decay > 0) direction.add_(parameters, settings_.weight_decay);
    std::int64_t at = 0;
    for (const Tensor& shape : shapes_) {
      const auto size = static_cast<std::int64_t>(shape.size());
      const auto weights = parameters.narrow(0, at, size);
      const auto towards = direction.narrow(0, at, size);
      const double weight_norm = weights.norm().item<double>();
      const double step_norm = towards.norm().item<double>();
      weights.add_(towards, -learning_rate * (weight_norm > 0 && step_norm > 0 ? weight_norm / step_norm : 1));
      at += size;
    }
  }

 private:
  const Shapes shapes_;
};

template <class Kind>
std::unique_ptr<Optimizer> make(const OptimizerSettings& settings, const at::Tensor& parameters, const Shapes& shapes) {
  return std::make_unique<Kind>(settings, parameters, shapes);
}

struct Maker {
  std::string_view name;
  std::unique_ptr<Optimizer> (*make)(const OptimizerSettings&, const at::Tensor&, const Shapes&);
};
constexpr std::array makers{Maker{"sgd", make<Sgd>}, Maker{"adamw", make<AdamW>}, Maker{"lars", make<Lars>},
                            Maker{"lamb", make<Lamb>}};

}  // namespace

std::span<const std::string_view> optimizer_names() {
  static constexpr auto names = [] {
    std::array<std::string_view, makers.size()> list;
    for (std::size_t i = 0; i < makers.size(); ++i) list[i] = makers[i].name;
    return list;
  }();
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSettings& settings, const at::Tensor& parameters,
                                          const std::vector<Tensor>& shapes) {
  for (const auto& maker : makers)
    if (maker.name == settings.name) return maker.make(settings, parameters, shapes);
  throw Error(ErrorKind::usage, unknown_name("optimizer", settings.name, optimizer_names()));
}

}  // namespace ranvier::trainer
