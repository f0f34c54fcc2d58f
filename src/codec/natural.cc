// Natural compression: each value becomes one of the two powers of two beside it, at random so that the expectation is
// the value. Horvath et al., "Natural Compression for Distributed Deep Learning", MSML 2022 (arXiv:1905.10988).
//
// The variance is at most 1/8 of the squared value. The paper sends sign and exponent, 9 bits; here a block of 256
// shares the exponent of its largest value in a byte and symbols count powers below it: 8 bits and 1/32. What is 2^-126
// times smaller than the largest of its block becomes 0.
#include <algorithm>
#include <bit>

#include "codec/scales.h"
#include "codec/stages.h"
#include "kernel/small_floats.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

class Natural final : public Quantizer {
 public:
  unsigned levels() const override { return 256; }
  std::size_t side_bytes(std::size_t count) const override { return (count + block - 1) / block; }
  void quantize(std::span<const float> values, std::uint32_t seed, std::uint8_t* symbols,
                std::byte* side) const override {
    for (std::size_t begin = 0; begin < values.size(); begin += block, ++side) {
      const std::size_t size = std::min(block, values.size() - begin);
      const float largest = kernel::largest_magnitude(values.data() + begin, size);
      const unsigned top = (std::bit_cast<std::uint32_t>(largest) >> 23) + 1;
      *side = static_cast<std::byte>(top);
      kernel::to_powers(values.data() + begin, size, top, seed + static_cast<std::uint32_t>(begin), symbols + begin);
    }
  }
  void dequantize(const std::uint8_t* symbols, const std::byte* side, std::span<float> out) const override {
    for (std::size_t begin = 0; begin < out.size(); begin += block, ++side)
      kernel::from_powers(symbols + begin, std::min(block, out.size() - begin), read_exponent(*side),
                          out.data() + begin);
  }

 private:
  static constexpr std::size_t block = 256;
};

}  // namespace

void add_natural(Parameters&, Draft& draft) { draft.quantizer = std::make_unique<Natural>(); }

}  // namespace ranvier
