// Predicting each character from those in front of it. A sample is a window of the text; windows do not overlap, so an
// epoch sees each character once, and the first ones of a window with little in front of them.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <numbers>

#include "integrations/trainer/samples.h"
#include "integrations/trainer/task.h"
#include "integrations/trainer/text_models.h"

namespace ranvier::trainer {
namespace {

// Rows of a window and the character behind it: each begins with the last one of the row in front.
at::Tensor windows_of(const std::vector<std::uint8_t>& text) {
  const auto count = static_cast<std::int64_t>(windows_in(text));
  return at::from_blob(const_cast<std::uint8_t*>(text.data()), {count, window + 1}, {window, 1},
                       at::TensorOptions(at::kByte));
}

class TextTask final : public WholeTask {
 public:
  TextTask(std::string_view model, const Text& data)
      : train_(windows_of(data.train)),
        test_(windows_of(data.test)),
        model_(make_text_model(model, static_cast<std::int64_t>(data.characters))) {}

  std::size_t samples() const override { return static_cast<std::size_t>(train_.size(0)); }
  std::size_t test_samples() const override { return static_cast<std::size_t>(test_.size(0)); }
  std::vector<at::Tensor> parameters() const override { return model_->parameters(); }

  at::Tensor loss(std::span<const std::int64_t> chosen, std::uint64_t) const override {
    const auto rows = train_.index_select(0, as_index(chosen)).to(at::kLong);
    return at::cross_entropy_loss(predict(rows), targets(rows));
  }

  // How many characters, how many of them right, and the sum of their losses.
  void add_test(std::int64_t begin, std::int64_t end, std::span<double> sums) const override {
    constexpr std::int64_t piece = 64;
    for (std::int64_t at = begin; at < end; at += piece) {
      const auto rows = test_.narrow(0, at, std::min(piece, end - at)).to(at::kLong);
      const auto scores = predict(rows);
      const auto wanted = targets(rows);
      const auto count = static_cast<double>(wanted.numel());
      sums[0] += count;
      sums[1] += scores.argmax(1).eq(wanted).sum().item<double>();
      sums[2] += at::cross_entropy_loss(scores, wanted).item<double>() * count;
    }
  }
  Score score(std::span<const double> sums) const override {
    const double loss = sums[2] / sums[0];
    return {.loss = loss, .accuracy = sums[1] / sums[0], .bits_per_character = loss / std::numbers::ln2};
  }

 private:
  at::Tensor predict(const at::Tensor& rows) const { return model_->forward(rows.narrow(1, 0, window)).flatten(0, 1); }
  static at::Tensor targets(const at::Tensor& rows) { return rows.narrow(1, 1, window).flatten(); }

  const at::Tensor train_;
  const at::Tensor test_;
  const std::unique_ptr<TextModel> model_;
};

}  // namespace

std::unique_ptr<Task> text_task(std::string_view model, const Text& data) {
  return std::make_unique<TextTask>(model, data);
}

}  // namespace ranvier::trainer
