// Images, and what each of them shows.
#include "integrations/trainer/examples.h"
#include "integrations/trainer/samples.h"

namespace ranvier::trainer {
namespace {

class ImageExamples final : public Examples {
 public:
  explicit ImageExamples(const Images& data)
      : train_(data.train, data), test_(data.test, data), normalize_(data.train.pixels) {}

  std::size_t samples() const override { return static_cast<std::size_t>(train_.labels.numel()); }
  std::size_t test_samples() const override { return static_cast<std::size_t>(test_.labels.numel()); }
  at::Tensor inputs(std::span<const std::int64_t> chosen) const override {
    return normalize_(train_.images.index_select(0, as_index(chosen)));
  }
  at::Tensor wanted(std::span<const std::int64_t> chosen) const override {
    return train_.labels.index_select(0, as_index(chosen)).to(at::kLong);
  }
  at::Tensor test_inputs(std::int64_t first, std::int64_t count) const override {
    return normalize_(test_.images.narrow(0, first, count));
  }
  at::Tensor test_wanted(std::int64_t first, std::int64_t count) const override {
    return test_.labels.narrow(0, first, count).to(at::kLong);
  }
  std::int64_t test_piece() const override { return 500; }
  Score score(std::span<const double> sums) const override {
    return {.loss = sums[2] / sums[0], .accuracy = sums[1] / sums[0]};
  }

 private:
  const Samples train_;
  const Samples test_;
  const Normalization normalize_;
};

}  // namespace

std::unique_ptr<Examples> image_examples(const Images& data) { return std::make_unique<ImageExamples>(data); }

}  // namespace ranvier::trainer
