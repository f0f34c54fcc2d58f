// One bit a value: its sign, times the mean magnitude of its block. Seide et al., "1-Bit Stochastic Gradient Descent",
// Interspeech 2014, which brought error feedback; with this scale, Karimireddy et al., "Error Feedback Fixes SignSGD
// and other Gradient Compression Schemes", ICML 2019 (arXiv:1901.09847).
//
// Of a block's squared norm at least (sum of magnitudes)^2 / d is kept.
#include <algorithm>
#include <cstring>

#include "codec/scales.h"
#include "codec/stages.h"
#include "kernel/codebook.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

constexpr kernel::Codebook signs{.values = {1}, .half = 1};

class Sign final : public Quantizer {
 public:
  explicit Sign(std::size_t block) : block_(block) {}
  unsigned levels() const override { return 2; }
  std::size_t side_bytes(std::size_t count) const override { return 4 * ((count + block_ - 1) / block_); }
  void quantize(std::span<const float> values, std::uint32_t, std::uint8_t* symbols, std::byte* side) const override {
    kernel::to_codebook(signs, values.data(), 1, values.size(), symbols);
    for (std::size_t begin = 0; begin < values.size(); begin += block_, side += 4) {
      const std::size_t size = std::min(block_, values.size() - begin);
      const double sum = kernel::sum_of_magnitudes(values.data() + begin, size);
      const auto mean = static_cast<float>(sum / static_cast<double>(size));
      std::memcpy(side, &mean, 4);
    }
  }
  void dequantize(const std::uint8_t* symbols, const std::byte* side, std::span<float> out) const override {
    for (std::size_t begin = 0; begin < out.size(); begin += block_, side += 4)
      kernel::from_codebook(signs, symbols + begin, read_scale(side), std::min(block_, out.size() - begin),
                            out.data() + begin);
  }

 private:
  std::size_t block_;
};

}  // namespace

void add_sign(Parameters& parameters, Draft& draft) {
  draft.quantizer = std::make_unique<Sign>(parameters.block(1024));
  draft.biased = true;
}

}  // namespace ranvier
