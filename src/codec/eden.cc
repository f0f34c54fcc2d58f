// EDEN and, at one bit, DRIVE: after a randomized Hadamard transform the coordinates of a block are nearly normal, so
// the best codebook for a normal variable is nearly the best for them; a scale of norm^2 / <codebook values,
// coordinates> then makes the decoded vector unbiased, as far as the transform is as good as a uniformly random
// rotation: in blocks of some hundred values and more none of which has much of the norm, not in the few values behind
// the last whole block. (Behind a transform of their own, few large values are many.) Vargaftik et al., "DRIVE:
// One-bit Distributed Mean Estimation", NeurIPS 2021 (arXiv:2105.08339) and "EDEN", ICML 2022 (arXiv:2108.08842).
//
// Expected squared error at 1 to 4 bits: 0.571, 0.133, 0.036 and 0.0096 of the squared norm, for large blocks.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/scales.h"
#include "codec/stages.h"
#include "kernel/codebook.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

// Centroids of the optimal quantizers of a standard normal variable, positive half. Max, "Quantizing for Minimum
// Distortion", IRE Transactions on Information Theory 1960; Lloyd 1982.
constexpr std::array<kernel::Codebook, 4> codebooks{
    kernel::Codebook{.values = {0.7979F}, .half = 1}, kernel::Codebook{.values = {0.4528F, 1.5104F}, .half = 2},
    kernel::Codebook{.values = {0.2451F, 0.7560F, 1.3439F, 2.1519F}, .half = 4},
    kernel::Codebook{.values = {0.1284F, 0.3880F, 0.6568F, 0.9423F, 1.2562F, 1.6181F, 2.0690F, 2.7326F}, .half = 8}};

class Eden final : public Quantizer {
 public:
  Eden(unsigned bits, std::size_t block) : bits_(bits), block_(block), codebook_(codebooks[bits - 1]) {}
  unsigned levels() const override { return 1U << bits_; }
  // The blocks of the transform, and so those at the end: one for each bit of what is left.
  std::size_t side_bytes(std::size_t count) const override {
    return 4 * (count / block_ + static_cast<std::size_t>(std::popcount(count % block_)));
  }
  // Of what is left behind whole blocks, 2^n - 1 values have the most blocks.
  std::size_t most_side_bytes(std::size_t count) const override {
    const auto most_left = [](std::size_t left) { return static_cast<std::size_t>(std::bit_width(left + 1) - 1); };
    const std::size_t whole = count / block_;
    const std::size_t blocks = whole + most_left(count % block_);
    return 4 * (whole == 0 ? blocks : std::max(blocks, whole - 1 + most_left(block_ - 1)));
  }
  void quantize(std::span<const float> values, std::uint32_t, std::uint8_t* symbols, std::byte* side) const override {
    for_each_block(values.size(), [&](std::size_t begin, std::size_t size) {
      const float* const block = values.data() + begin;
      const double squares = kernel::sum_of_squares(block, size);
      const double factor = squares > 0 ? std::sqrt(static_cast<double>(size) / squares) : 0;
      // Where 1 / norm or the norm leaves the range of f32 it counts as 0: error feedback, where it is on, keeps the
      // values.
      const bool zero = !(squares >= 0x1p-200 && squares <= 0x1p126);
      kernel::to_codebook(codebook_, block, zero ? 0 : static_cast<float>(factor), size, symbols + begin);
      const auto scale = zero ? 0.0F : static_cast<float>(squares / along_codes(block, symbols + begin, size));
      std::memcpy(side, &scale, 4);
      side += 4;
    });
  }
  void dequantize(const std::uint8_t* symbols, const std::byte* side, std::span<float> out) const override {
    for_each_block(out.size(), [&](std::size_t begin, std::size_t size) {
      kernel::from_codebook(codebook_, symbols + begin, read_scale(side), size, out.data() + begin);
      side += 4;
    });
  }

 private:
  // <codebook values, x>; of signs, without looking each of them up.
  double along_codes(const float* block, const std::uint8_t* symbols, std::size_t size) const {
    if (bits_ == 1) return static_cast<double>(codebook_.values[0]) * kernel::sum_of_magnitudes(block, size);
    std::array<float, chunk_values> coded;
    kernel::from_codebook(codebook_, symbols, 1, size, coded.data());
    return kernel::dot(block, coded.data(), size);
  }

  template <class Body>
  void for_each_block(std::size_t count, const Body& body) const {
    std::size_t size = block_;
    for (std::size_t begin = 0; begin < count; begin += size) {
      while (size > count - begin) size /= 2;
      body(begin, size);
    }
  }

  unsigned bits_;
  std::size_t block_;
  const kernel::Codebook& codebook_;
};

}  // namespace

void add_eden(Parameters& parameters, Draft& draft) {
  const auto bits = static_cast<unsigned>(parameters.count("", 1, 1, 4));
  const std::size_t block = parameters.block(1024);
  draft.transforms.push_back(hadamard_transform(block));
  draft.quantizer = std::make_unique<Eden>(bits, block);
  // Of one bit the owner of a part loses 0.57 of a sum's squared norm, which is averaged with nobody's, and of blocks
  // with heavy tails codes are off by up to a third. Error feedback converges where less is lost than there was.
  draft.biased = draft.biased || bits == 1;
}

}  // namespace ranvier
