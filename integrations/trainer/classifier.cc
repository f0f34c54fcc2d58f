// Telling classes apart by a network that each worker holds whole, or of whose matrices each holds a part.
#include <algorithm>
#include <utility>

#include "integrations/trainer/task.h"

namespace ranvier::trainer {
namespace {

class Classifier final : public WholeTask {
 public:
  Classifier(Pieces model, std::unique_ptr<Examples> examples)
      : model_(std::move(model)), examples_(std::move(examples)) {}

  std::size_t samples() const override { return examples_->samples(); }
  std::size_t test_samples() const override { return examples_->test_samples(); }
  std::vector<at::Tensor> parameters() const override { return parameters_of(model_); }
  std::vector<at::Tensor> common_parameters() const override { return whole_parameters_of(model_); }

  at::Tensor loss(std::span<const std::int64_t> chosen, std::uint64_t) const override {
    return loss_of(run(model_, examples_->inputs(chosen)), examples_->wanted(chosen));
  }

  void add_test(std::int64_t begin, std::int64_t end, std::span<double> sums) const override {
    const std::int64_t piece = examples_->test_piece();
    for (std::int64_t at = begin; at < end; at += piece) {
      const std::int64_t size = std::min(piece, end - at);
      add_scores(run(model_, examples_->test_inputs(at, size)), examples_->test_wanted(at, size), sums);
    }
  }
  Score score(std::span<const double> sums) const override { return examples_->score(sums); }

 private:
  const Pieces model_;
  const std::unique_ptr<Examples> examples_;
};

}  // namespace

std::unique_ptr<Task> classifier(Pieces model, std::unique_ptr<Examples> examples) {
  return std::make_unique<Classifier>(std::move(model), std::move(examples));
}

}  // namespace ranvier::trainer
