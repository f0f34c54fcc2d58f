// Telling images apart: cross entropy, and the share that is named right.
#include <ATen/ops/cross_entropy_loss.h>

#include <algorithm>

#include "integrations/trainer/image_models.h"
#include "integrations/trainer/image_scores.h"
#include "integrations/trainer/samples.h"
#include "integrations/trainer/task.h"

namespace ranvier::trainer {
namespace {

class ImageTask final : public WholeTask {
 public:
  ImageTask(std::string_view model, const Images& data, ModelTeam& team)
      : train_(data.train, data),
        test_(data.test, data),
        normalize_(data.train.pixels),
        model_(make_image_model(model, shape_of(data), team)) {}

  std::size_t samples() const override { return static_cast<std::size_t>(train_.labels.numel()); }
  std::size_t test_samples() const override { return static_cast<std::size_t>(test_.labels.numel()); }
  std::vector<at::Tensor> parameters() const override { return parameters_of(model_); }
  std::vector<at::Tensor> common_parameters() const override { return whole_parameters_of(model_); }

  at::Tensor loss(std::span<const std::int64_t> chosen, std::uint64_t) const override {
    const auto index = as_index(chosen);
    return at::cross_entropy_loss(run(model_, normalize_(train_.images.index_select(0, index))),
                                  train_.labels.index_select(0, index).to(at::kLong));
  }

  void add_test(std::int64_t begin, std::int64_t end, std::span<double> sums) const override {
    for (std::int64_t at = begin; at < end; at += test_piece) {
      const std::int64_t size = std::min(test_piece, end - at);
      add_scores(run(model_, normalize_(test_.images.narrow(0, at, size))), test_.labels.narrow(0, at, size), sums);
    }
  }
  Score score(std::span<const double> sums) const override { return image_score(sums); }

 private:
  const Samples train_;
  const Samples test_;
  const Normalization normalize_;
  const ImageModel model_;
};

}  // namespace

std::unique_ptr<Task> image_task(std::string_view model, const Images& data, ModelTeam& team) {
  return std::make_unique<ImageTask>(model, data, team);
}

}  // namespace ranvier::trainer
