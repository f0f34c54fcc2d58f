// Telling images apart: cross entropy, and the share that is named right.
#include <ATen/ops/cross_entropy_loss.h>

#include <algorithm>

#include "integrations/trainer/image_models.h"
#include "integrations/trainer/samples.h"
#include "integrations/trainer/task.h"

namespace ranvier::trainer {
namespace {

class ImageTask final : public Task {
 public:
  ImageTask(std::string_view model, const Images& data)
      : train_(data.train, data),
        test_(data.test, data),
        normalize_(data.train.pixels),
        model_(make_image_model(model, {.channels = static_cast<std::int64_t>(data.channels),
                                        .rows = static_cast<std::int64_t>(data.rows),
                                        .columns = static_cast<std::int64_t>(data.columns),
                                        .classes = static_cast<std::int64_t>(data.classes)})) {}

  std::size_t samples() const override { return static_cast<std::size_t>(train_.labels.numel()); }
  std::size_t test_samples() const override { return static_cast<std::size_t>(test_.labels.numel()); }
  std::vector<at::Tensor> parameters() const override { return model_->parameters(); }

  at::Tensor loss(std::span<const std::int64_t> chosen, std::uint64_t) const override {
    const auto index = as_index(chosen);
    return at::cross_entropy_loss(model_->forward(normalize_(train_.images.index_select(0, index))),
                                  train_.labels.index_select(0, index).to(at::kLong));
  }

  // How many, how many of them right, and the sum of their losses.
  void add_test(std::int64_t begin, std::int64_t end, std::span<double> sums) const override {
    constexpr std::int64_t piece = 500;
    for (std::int64_t at = begin; at < end; at += piece) {
      const std::int64_t size = std::min(piece, end - at);
      const auto labels = test_.labels.narrow(0, at, size).to(at::kLong);
      const auto scores = model_->forward(normalize_(test_.images.narrow(0, at, size)));
      sums[0] += static_cast<double>(size);
      sums[1] += scores.argmax(1).eq(labels).sum().item<double>();
      sums[2] += at::cross_entropy_loss(scores, labels).item<double>() * static_cast<double>(size);
    }
  }
  Score score(std::span<const double> sums) const override {
    return {.loss = sums[2] / sums[0], .accuracy = sums[1] / sums[0]};
  }

 private:
  const Samples train_;
  const Samples test_;
  const Normalization normalize_;
  const std::unique_ptr<ImageModel> model_;
};

}  // namespace

std::unique_ptr<Task> image_task(std::string_view model, const Images& data) {
  return std::make_unique<ImageTask>(model, data);
}

}  // namespace ranvier::trainer
