// Windows of a text, and behind each character the next one. Windows do not overlap, so an epoch sees each character
// once, and the first ones of a window with little in front of them.
#include <ATen/ops/from_blob.h>

#include <numbers>

#include "integrations/trainer/examples.h"
#include "integrations/trainer/samples.h"

namespace ranvier::trainer {
namespace {

// Rows of a window and the character behind it: each begins with the last one of the row in front.
at::Tensor windows_of(const std::vector<std::uint8_t>& text) {
  const auto count = static_cast<std::int64_t>(windows_in(text));
  return at::from_blob(const_cast<std::uint8_t*>(text.data()), {count, window + 1}, {window, 1},
                       at::TensorOptions(at::kByte));
}

class TextExamples final : public Examples {
 public:
  explicit TextExamples(const Text& data) : train_(windows_of(data.train)), test_(windows_of(data.test)) {}

  std::size_t samples() const override { return static_cast<std::size_t>(train_.size(0)); }
  std::size_t test_samples() const override { return static_cast<std::size_t>(test_.size(0)); }
  at::Tensor inputs(std::span<const std::int64_t> chosen) const override {
    return shown_in(train_.index_select(0, as_index(chosen)));
  }
  at::Tensor wanted(std::span<const std::int64_t> chosen) const override {
    return behind_each_of(train_.index_select(0, as_index(chosen)));
  }
  at::Tensor test_inputs(std::int64_t first, std::int64_t count) const override {
    return shown_in(test_.narrow(0, first, count));
  }
  at::Tensor test_wanted(std::int64_t first, std::int64_t count) const override {
    return behind_each_of(test_.narrow(0, first, count));
  }
  std::int64_t test_piece() const override { return 64; }
  Score score(std::span<const double> sums) const override {
    const double loss = sums[2] / sums[0];
    return {.loss = loss, .accuracy = sums[1] / sums[0], .bits_per_character = loss / std::numbers::ln2};
  }

 private:
  static at::Tensor shown_in(const at::Tensor& rows) { return rows.narrow(1, 0, window).to(at::kLong); }
  static at::Tensor behind_each_of(const at::Tensor& rows) { return rows.narrow(1, 1, window).to(at::kLong).flatten(); }

  const at::Tensor train_;
  const at::Tensor test_;
};

}  // namespace

std::unique_ptr<Examples> text_examples(const Text& data) { return std::make_unique<TextExamples>(data); }

}  // namespace ranvier::trainer
