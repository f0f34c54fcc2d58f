// What is learnt: a model together with its samples, its loss and how it is judged. The training loop knows nothing
// else of any of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "integrations/trainer/dataset.h"
#include "integrations/trainer/score.h"

namespace ranvier::trainer {

class Task {
 public:
  virtual ~Task() = default;
  // Of training, and of testing.
  virtual std::size_t samples() const = 0;
  virtual std::size_t test_samples() const = 0;
  // In the order in which the forward pass uses them.
  virtual std::vector<at::Tensor> parameters() const = 0;
  // The mean over these samples of training. `first`: how many all workers have seen before these since training began,
  // of which alone follows what is drawn at random.
  virtual at::Tensor loss(std::span<const std::int64_t> chosen, std::uint64_t first) const = 0;
  // What the score is made of, added up over the test samples begin … end - 1: so many numbers.
  virtual std::size_t sums() const { return 3; }
  virtual void add_test(std::int64_t begin, std::int64_t end, std::span<double> sums) const = 0;
  virtual Score score(std::span<const double> sums) const = 0;
};

// One of model_names(), with first weights from torch's generator; `data` outlives it. Throws Error{usage} for another
// name and for a model that does not learn from such data.
std::unique_ptr<Task> make_task(std::string_view model, const Dataset& data, std::uint64_t seed);

// One file each.
std::unique_ptr<Task> image_task(std::string_view model, const Images& data);
std::unique_ptr<Task> text_task(std::string_view model, const Text& data);
std::unique_ptr<Task> adversarial_task(const Images& data, std::uint64_t seed);

}  // namespace ranvier::trainer
