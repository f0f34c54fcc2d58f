// Images as torch sees them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "integrations/trainer/dataset.h"

namespace ranvier::trainer {

// Images and labels as tensors that share the data set's memory.
struct Samples {
  at::Tensor images;  // n x channels x rows x columns, bytes
  at::Tensor labels;  // n, bytes

  Samples(const LabelledImages& source, const Images& data)
      : images(at::from_blob(const_cast<std::uint8_t*>(source.pixels.data()),
                             {static_cast<std::int64_t>(source.count()), static_cast<std::int64_t>(data.channels),
                              static_cast<std::int64_t>(data.rows), static_cast<std::int64_t>(data.columns)},
                             at::kByte)),
        labels(at::from_blob(const_cast<std::uint8_t*>(source.labels.data()),
                             {static_cast<std::int64_t>(source.count())}, at::kByte)) {}
};

// The numbers of samples, in memory that outlives the tensor.
inline at::Tensor as_index(std::span<const std::int64_t> chosen) {
  return at::from_blob(const_cast<std::int64_t*>(chosen.data()), {static_cast<std::int64_t>(chosen.size())}, at::kLong);
}

// Mean and deviation of the training pixels, as torchvision's Normalize takes them: 0.286 and 0.353 for Fashion-MNIST.
struct Normalization {
  float scale;
  float shift;

  explicit Normalization(const std::vector<std::uint8_t>& pixels) {
    std::array<std::uint64_t, 256> counts{};
    for (const auto pixel : pixels) ++counts[pixel];
    double sum = 0;
    double squares = 0;
    for (std::size_t value = 0; value < counts.size(); ++value) {
      sum += static_cast<double>(counts[value]) * static_cast<double>(value);
      squares += static_cast<double>(counts[value]) * static_cast<double>(value * value);
    }
    const double mean = sum / static_cast<double>(pixels.size());
    const double deviation = std::sqrt(std::max(squares / static_cast<double>(pixels.size()) - mean * mean, 1.0));
    scale = static_cast<float>(1 / deviation);
    shift = static_cast<float>(-mean / deviation);
  }
  at::Tensor operator()(const at::Tensor& pixels) const { return pixels.to(at::kFloat).mul_(scale).add_(shift); }
};

}  // namespace ranvier::trainer
