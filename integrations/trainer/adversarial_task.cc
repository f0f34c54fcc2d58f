// Two networks against each other: one makes images of noise, one tells them from real ones. Goodfellow et al.,
// "Generative Adversarial Nets", NIPS 2014, with the loss for the generator that does not saturate, and convolutions as
// in Radford, Metz and Chintala, "Unsupervised Representation Learning with Deep Convolutional Generative Adversarial
// Networks", ICLR 2016; no normalization, so an image's result depends on no other image.
//
// Both take their step at once (Mescheder, Nowozin and Geiger, "The Numerics of GANs", NIPS 2017, call it simultaneous
// gradient descent), so that both networks are one vector of parameters with one gradient, which any policy, codec and
// optimizer exchanges as any other. Each network's loss leaves the other one's parameters alone.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>

#include <algorithm>
#include <cmath>

#include "integrations/trainer/layers.h"
#include "integrations/trainer/samples.h"
#include "integrations/trainer/task.h"

namespace ranvier::trainer {
namespace {

constexpr std::int64_t noise_size = 64;

// Each row by a seed of its own, `seed_of` its number: it is the same wherever a batch is cut.
template <class SeedOf>
at::Tensor noise(std::int64_t count, const SeedOf& seed_of) {
  auto all = at::empty({count, noise_size}, at::kFloat);
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  for (std::int64_t row = 0; row < count; ++row) {
    generator.set_current_seed(seed_of(static_cast<std::uint64_t>(row)));
    all.select(0, row).normal_(0, 1, generator);
  }
  return all;
}

class Generator {
 public:
  Generator(std::int64_t channels, std::int64_t rows, std::int64_t columns)
      : rows_(rows / 4),
        columns_(columns / 4),
        full_({wide * rows_ * columns_, noise_size}),
        image_weight_(normal_weights({narrow, channels, 4, 4}, 0.05)),
        image_bias_(constant_weights({channels}, 0)) {}
  // n x noise_size -> n x channels x rows x columns, each from -1 to 1.
  at::Tensor forward(const at::Tensor& z) const {
    auto x = at::relu(linear(z, full_)).view({z.size(0), wide, rows_, columns_});
    x = at::relu(at::conv_transpose2d(x, widen_weight_, widen_bias_, 2, 1));
    return at::tanh(at::conv_transpose2d(x, image_weight_, image_bias_, 2, 1));
  }
  void add_to(std::vector<at::Tensor>& all) const {
    append(all, full_);
    all.insert(all.end(), {widen_weight_, widen_bias_, image_weight_, image_bias_});
  }

 private:
  static constexpr std::int64_t wide = 32;
  static constexpr std::int64_t narrow = 16;
  const std::int64_t rows_;
  const std::int64_t columns_;
  Layer full_;
  at::Tensor widen_weight_ = normal_weights({wide, narrow, 4, 4}, 0.05);
  at::Tensor widen_bias_ = constant_weights({narrow}, 0);
  at::Tensor image_weight_;
  at::Tensor image_bias_;
};

class Discriminator {
 public:
  Discriminator(std::int64_t channels, std::int64_t rows, std::int64_t columns)
      : conv1_({16, channels, 4, 4}), full_({1, 32 * (rows / 4) * (columns / 4)}) {}
  // The logarithm of the odds that an image is real.
  at::Tensor forward(const at::Tensor& images) const {
    auto x = at::leaky_relu(at::conv2d(images, conv1_.weight, conv1_.bias, 2, 1), 0.2);
    x = at::leaky_relu(at::conv2d(x, conv2_.weight, conv2_.bias, 2, 1), 0.2);
    return linear(x.flatten(1), full_);
  }
  // The same for the other network's loss.
  Discriminator fixed() const { return {conv1_.fixed(), conv2_.fixed(), full_.fixed()}; }
  void add_to(std::vector<at::Tensor>& all) const {
    for (const auto* layer : {&conv1_, &conv2_, &full_}) append(all, *layer);
  }

 private:
  Discriminator(Layer conv1, Layer conv2, Layer full)
      : conv1_(std::move(conv1)), conv2_(std::move(conv2)), full_(std::move(full)) {}
  Layer conv1_;
  Layer conv2_{{32, 16, 4, 4}};
  Layer full_;
};

// What images are compared by: two convolutions whose weights are drawn once and for all. Random features need no data
// and no download, and order generators of such images as trained ones do (Naeem et al., "Reliable Fidelity and
// Diversity Metrics for Generative Models", ICML 2020, argue for random embeddings where images are not ImageNet's).
// Distances are comparable with each other, and with no published one.
class RandomFeatures {
 public:
  static constexpr std::int64_t size = 32 * 2 * 2;

  explicit RandomFeatures(std::int64_t channels) {
    auto drawn = at::make_generator<at::CPUGeneratorImpl>(1);
    first_ =
        at::randn({16, channels, 4, 4}, drawn, at::kFloat).mul_(std::sqrt(2.0 / static_cast<double>(channels * 16)));
    second_ = at::randn({32, 16, 4, 4}, drawn, at::kFloat).mul_(std::sqrt(2.0 / 256));
  }
  // Adds up features and their products.
  void add(const at::Tensor& images, at::Tensor sum, at::Tensor products) const {
    const auto x = at::relu(at::conv2d(at::relu(at::conv2d(images, first_, {}, 2, 1)), second_, {}, 2, 1));
    const auto features = at::adaptive_avg_pool2d(x, {2, 2}).flatten(1).to(at::kDouble);
    sum.add_(features.sum(0));
    products.add_(features.t().matmul(features));
  }

 private:
  at::Tensor first_;
  at::Tensor second_;
};

at::Tensor root(const at::Tensor& covariance) {
  const auto [values, vectors] = at::linalg_eigh(covariance);
  return vectors.matmul(values.clamp_min(0).sqrt().unsqueeze(1).mul(vectors.t()));
}

// Between two normal distributions: Heusel et al., "GANs Trained by a Two Time-Scale Update Rule Converge to a Local
// Nash Equilibrium", NIPS 2017.
double frechet_distance(const at::Tensor& mean1, const at::Tensor& covariance1, const at::Tensor& mean2,
                        const at::Tensor& covariance2) {
  const auto half = root(covariance1);
  const auto both = root(half.matmul(covariance2).matmul(half));
  return (mean1 - mean2).square().sum().item<double>() + (covariance1 + covariance2 - 2 * both).trace().item<double>();
}

class AdversarialTask final : public WholeTask {
 public:
  AdversarialTask(const Images& data, std::uint64_t seed)
      : train_(data.train, data),
        test_(data.test, data),
        seed_(seed * 1'000'003),
        generator_(channels_, static_cast<std::int64_t>(data.rows), static_cast<std::int64_t>(data.columns)),
        discriminator_(channels_, static_cast<std::int64_t>(data.rows), static_cast<std::int64_t>(data.columns)),
        features_(channels_) {}

  std::size_t samples() const override { return static_cast<std::size_t>(train_.labels.numel()); }
  std::size_t test_samples() const override { return static_cast<std::size_t>(test_.labels.numel()); }
  std::vector<at::Tensor> parameters() const override {
    std::vector<at::Tensor> all;
    generator_.add_to(all);
    discriminator_.add_to(all);
    return all;
  }

  at::Tensor loss(std::span<const std::int64_t> chosen, std::uint64_t first) const override {
    const auto draw = [&](std::uint64_t row) { return seed_ + first + row; };
    return both_losses(train_.images.index_select(0, as_index(chosen)), draw);
  }

  // How many, the sum of the losses, and of real images and of made ones the sums of features and of their products.
  std::size_t sums() const override { return static_cast<std::size_t>(2 + 2 * (width + width * width)); }
  void add_test(std::int64_t begin, std::int64_t end, std::span<double> sums) const override {
    constexpr std::int64_t piece = 500;
    const auto all = at::from_blob(sums.data(), {static_cast<std::int64_t>(sums.size())}, at::kDouble);
    for (std::int64_t at = begin; at < end; at += piece) {
      const std::int64_t size = std::min(piece, end - at);
      const auto images = test_.images.narrow(0, at, size);
      // Other noise than in training, the same at every look.
      const auto draw = [&](std::uint64_t row) { return ~(seed_ + static_cast<std::uint64_t>(at) + row); };
      sums[0] += static_cast<double>(size);
      sums[1] += both_losses(images, draw).item<double>() * static_cast<double>(size);
      features_.add(as_input(images), sum_of(all, 0), products_of(all, 0));
      features_.add(generator_.forward(noise(size, draw)), sum_of(all, 1), products_of(all, 1));
    }
  }
  Score score(std::span<const double> sums) const override {
    const double count = sums[0];
    const auto all =
        at::from_blob(const_cast<double*>(sums.data()), {static_cast<std::int64_t>(sums.size())}, at::kDouble);
    const auto mean = [&](std::int64_t which) { return sum_of(all, which).div(count); };
    const auto covariance = [&](std::int64_t which) {
      return products_of(all, which).div(count).sub(at::outer(mean(which), mean(which)));
    };
    return {.loss = sums[1] / count,
            .frechet_distance = frechet_distance(mean(0), covariance(0), mean(1), covariance(1))};
  }

 private:
  static constexpr std::int64_t width = RandomFeatures::size;

  static at::Tensor sum_of(const at::Tensor& all, std::int64_t which) {
    return all.narrow(0, 2 + which * (width + width * width), width);
  }
  static at::Tensor products_of(const at::Tensor& all, std::int64_t which) {
    return all.narrow(0, 2 + which * (width + width * width) + width, width * width).view({width, width});
  }
  static at::Tensor as_input(const at::Tensor& pixels) { return pixels.to(at::kFloat).div_(127.5).sub_(1); }

  // softplus(-x) and softplus(x) are the cross entropies of "real" and of "made".
  template <class SeedOf>
  at::Tensor both_losses(const at::Tensor& pixels, const SeedOf& draw) const {
    const auto made = generator_.forward(noise(pixels.size(0), draw));
    return at::softplus(discriminator_.forward(as_input(pixels)).neg()).mean() +
           at::softplus(discriminator_.forward(made.detach())).mean() +
           at::softplus(discriminator_.fixed().forward(made).neg()).mean();
  }

  const Samples train_;
  const Samples test_;
  const std::uint64_t seed_;
  const std::int64_t channels_ = train_.images.size(1);
  const Generator generator_;
  const Discriminator discriminator_;
  const RandomFeatures features_;
};

}  // namespace

std::unique_ptr<Task> adversarial_task(const Images& data, std::uint64_t seed) {
  return std::make_unique<AdversarialTask>(data, seed);
}

}  // namespace ranvier::trainer
