// Telling images apart by stages: each worker of a team holds some consecutive pieces of the network, and the passes of
// a step go through all of them, one forward, one backward.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

#include "integrations/trainer/image_models.h"
#include "integrations/trainer/image_scores.h"
#include "integrations/trainer/pipeline_order.h"
#include "integrations/trainer/samples.h"
#include "integrations/trainer/task.h"

namespace ranvier::trainer {
namespace {

class ImagePipeline final : public Task {
 public:
  ImagePipeline(std::string_view model, const Images& data, ModelTeam& team)
      : train_(data.train, data), test_(data.test, data), normalize_(data.train.pixels), team_(team) {
    const ImageModel whole = make_image_model(model, shape_of(data), team);
    const auto border = [&](Rank part) {
      return static_cast<std::ptrdiff_t>(whole.size() * static_cast<std::size_t>(part) /
                                         static_cast<std::size_t>(team.parts()));
    };
    const auto begin = whole.begin() + border(team.part());
    own_.assign(begin, whole.begin() + border(team.part() + 1));
    const at::NoGradGuard no_grad;
    const auto image = normalize_(test_.images.narrow(0, 0, 1));
    input_shape_ = run({whole.begin(), begin}, image).sizes().vec();
  }

  std::size_t samples() const override { return static_cast<std::size_t>(train_.labels.numel()); }
  std::size_t test_samples() const override { return static_cast<std::size_t>(test_.labels.numel()); }
  std::vector<at::Tensor> parameters() const override { return parameters_of(own_); }

  double train(std::span<const Pass> passes, double weight, const PassEvents& events) const override {
    std::vector<Stage> stages(passes.size());
    std::array<double, 1> mean{0};
    for (const auto& [is_forward, number] : one_forward_one_backward(
             static_cast<std::size_t>(team_.part()), static_cast<std::size_t>(team_.parts()), passes.size())) {
      Stage& stage = stages[number];
      if (is_forward) {
        events.forward(number);
        forward(passes[number], stage);
        if (is_last()) mean[0] += passes[number].share * stage.output.item<double>();
      } else {
        events.backward(number);
        backward(weight * passes[number].share, stage);
        stage = {};
      }
    }
    team_.finish_sends();
    team_.share(mean);
    return mean[0];
  }

  void add_test(std::int64_t begin, std::int64_t end, std::span<double> sums) const override {
    for (std::int64_t at = begin; at < end; at += test_piece) {
      const std::int64_t size = std::min(test_piece, end - at);
      const auto output = run(own_, is_first() ? normalize_(test_.images.narrow(0, at, size)) : receive_input(size));
      if (is_last())
        add_scores(output, test_.labels.narrow(0, at, size), sums);
      else
        team_.send(output, team_.part() + 1);
    }
    team_.finish_sends();
  }
  Score score(std::span<const double> sums) const override { return image_score(sums); }

 private:
  // What backward needs of a pass.
  struct Stage {
    at::Tensor input;
    at::Tensor output;  // of the last stage the loss
  };

  bool is_first() const { return team_.part() == 0; }
  bool is_last() const { return team_.part() + 1 == team_.parts(); }

  at::Tensor receive_input(std::int64_t count) const {
    auto shape = input_shape_;
    shape[0] = count;
    return team_.receive(shape, team_.part() - 1);
  }

  void forward(const Pass& pass, Stage& stage) const {
    const auto index = as_index(pass.samples);
    stage.input = is_first() ? normalize_(train_.images.index_select(0, index))
                             : receive_input(index.numel()).set_requires_grad(true);
    stage.output = run(own_, stage.input);
    if (is_last())
      stage.output = at::cross_entropy_loss(stage.output, train_.labels.index_select(0, index).to(at::kLong));
    else
      team_.send(stage.output, team_.part() + 1);
  }

  void backward(double weight, const Stage& stage) const {
    if (is_last())
      (weight == 1 ? stage.output : stage.output * weight).backward();
    else
      stage.output.backward(team_.receive(stage.output.sizes(), team_.part() + 1));
    if (!is_first()) team_.send(stage.input.grad(), team_.part() - 1);
  }

  const Samples train_;
  const Samples test_;
  const Normalization normalize_;
  ModelTeam& team_;
  ImageModel own_;
  std::vector<std::int64_t> input_shape_;  // of one image
};

}  // namespace

std::unique_ptr<Task> image_pipeline(std::string_view model, const Images& data, ModelTeam& team) {
  return std::make_unique<ImagePipeline>(model, data, team);
}

}  // namespace ranvier::trainer
