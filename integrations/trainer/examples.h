// What a classifier learns from: inputs, and the class of each, be it of an image what it shows, or of each character
// of a text the one behind it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "integrations/trainer/dataset.h"
#include "integrations/trainer/score.h"

namespace ranvier::trainer {

class Examples {
 public:
  virtual ~Examples() = default;
  // Samples of training, and of testing.
  virtual std::size_t samples() const = 0;
  virtual std::size_t test_samples() const = 0;
  // Of samples of training: what a model takes, and the classes of all rows of what it gives.
  virtual at::Tensor inputs(std::span<const std::int64_t> chosen) const = 0;
  virtual at::Tensor wanted(std::span<const std::int64_t> chosen) const = 0;
  // The same of `count` test samples from the first on, and how many are to be tested at a time.
  virtual at::Tensor test_inputs(std::int64_t first, std::int64_t count) const = 0;
  virtual at::Tensor test_wanted(std::int64_t first, std::int64_t count) const = 0;
  virtual std::int64_t test_piece() const = 0;
  // Of the sums of add_scores.
  virtual Score score(std::span<const double> sums) const = 0;
};

// One file each; the data outlives them.
std::unique_ptr<Examples> image_examples(const Images& data);
std::unique_ptr<Examples> text_examples(const Text& data);

// Cross entropy of what a model gives, … x classes, and the classes that its rows should be: the mean over all rows.
at::Tensor loss_of(const at::Tensor& outputs, const at::Tensor& wanted);
// Adds how many rows there are, how many of them are right, and the sum of their losses.
void add_scores(const at::Tensor& outputs, const at::Tensor& wanted, std::span<double> sums);

}  // namespace ranvier::trainer
