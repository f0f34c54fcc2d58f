// Telling classes apart by stages: each worker of a team holds some consecutive pieces of the network, and the passes
// of a step go through all of them, one forward, one backward.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <utility>

#include "integrations/trainer/pipeline_order.h"
#include "integrations/trainer/task.h"

namespace ranvier::trainer {
namespace {

class ClassifierPipeline final : public Task {
 public:
  ClassifierPipeline(const Pieces& whole, std::unique_ptr<Examples> examples, ModelTeam& team)
      : examples_(std::move(examples)), team_(team) {
    const auto border = [&](Rank part) {
      return static_cast<std::ptrdiff_t>(whole.size() * static_cast<std::size_t>(part) /
                                         static_cast<std::size_t>(team.parts()));
    };
    const auto begin = whole.begin() + border(team.part());
    own_.assign(begin, whole.begin() + border(team.part() + 1));
    const at::NoGradGuard no_grad;
    input_shape_ = run({whole.begin(), begin}, examples_->test_inputs(0, 1)).sizes().vec();
  }

  std::size_t samples() const override { return examples_->samples(); }
  std::size_t test_samples() const override { return examples_->test_samples(); }
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
    const std::int64_t piece = examples_->test_piece();
    for (std::int64_t at = begin; at < end; at += piece) {
      const std::int64_t size = std::min(piece, end - at);
      const auto output = run(own_, is_first() ? examples_->test_inputs(at, size) : receive_input(size));
      if (is_last())
        add_scores(output, examples_->test_wanted(at, size), sums);
      else
        team_.send(output, team_.part() + 1);
    }
    team_.finish_sends();
  }
  Score score(std::span<const double> sums) const override { return examples_->score(sums); }

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
    stage.input =
        is_first() ? examples_->inputs(pass.samples) : receive_input(std::ssize(pass.samples)).set_requires_grad(true);
    stage.output = run(own_, stage.input);
    if (is_last())
      stage.output = loss_of(stage.output, examples_->wanted(pass.samples));
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

  const std::unique_ptr<Examples> examples_;
  ModelTeam& team_;
  Pieces own_;
  std::vector<std::int64_t> input_shape_;  // of one sample
};

}  // namespace

std::unique_ptr<Task> classifier_pipeline(const Pieces& whole, std::unique_ptr<Examples> examples, ModelTeam& team) {
  return std::make_unique<ClassifierPipeline>(whole, std::move(examples), team);
}

}  // namespace ranvier::trainer
