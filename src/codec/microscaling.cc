// Microscaling (MX): blocks of 32 small floats that share a power of two. Rouhani et al., "Microscaling Data Formats
// for Deep Learning", arXiv:2310.10537, and the OCP MX specification 1.0.
//
// scale = 2^(floor(log2 max) - emax), a byte a block (E8M0); elements are e4m3, e5m2 or e2m1 of value / scale, rounded
// to nearest even; what rounds beyond the largest element becomes the largest, which may be 1/8 too small (e2m1: 1/4).
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "codec/scales.h"
#include "codec/stages.h"
#include "kernel/small_floats.h"
#include "kernel/vectors.h"

namespace ranvier {
namespace {

class Microscaling final : public Quantizer {
 public:
  explicit Microscaling(const kernel::SmallFloat& format)
      : format_(format), top_exponent_(static_cast<int>(format.largest >> format.mantissa_bits) - format.bias) {
    for (std::size_t code = 0; code < values_.size(); ++code)
      values_[code] = kernel::from_small_float(format, static_cast<std::uint8_t>(code));
  }
  unsigned levels() const override { return 1U << format_.bits; }
  std::size_t side_bytes(std::size_t count) const override { return (count + block - 1) / block; }
  void quantize(std::span<const float> values, std::uint32_t, std::uint8_t* symbols, std::byte* side) const override {
    for (std::size_t begin = 0; begin < values.size(); begin += block, ++side) {
      const std::size_t size = std::min(block, values.size() - begin);
      const float largest = kernel::largest_magnitude(values.data() + begin, size);
      // The biased exponent of f32 is that of E8M0. Scales stay away from 0, where they would be denormal; what has a
      // code is far from the other end.
      const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(largest) >> 23) - top_exponent_;
      const int scale = std::max(exponent, 1);
      *side = static_cast<std::byte>(scale);
      kernel::to_small_float(format_, values.data() + begin, std::ldexp(1.0F, 127 - scale), size, symbols + begin);
    }
  }
  void dequantize(const std::uint8_t* symbols, const std::byte* side, std::span<float> out) const override {
    for (std::size_t begin = 0; begin < out.size(); begin += block, ++side) {
      const float scale = std::bit_cast<float>(read_exponent(*side) << 23);
      const std::size_t end = std::min(begin + block, out.size());
      for (std::size_t i = begin; i < end; ++i) out[i] = values_[symbols[i]] * scale;
    }
  }

 private:
  static constexpr std::size_t block = 32;

  kernel::SmallFloat format_;
  int top_exponent_;
  std::array<float, 256> values_;
};

}  // namespace

void add_mx(Parameters& parameters, Draft& draft) {
  constexpr std::array<std::string_view, 3> formats{"e4m3", "e5m2", "e2m1"};
  const std::string format = parameters.choice("", "e4m3", formats);
  draft.quantizer = std::make_unique<Microscaling>(format == "e4m3"   ? kernel::e4m3
                                                   : format == "e5m2" ? kernel::e5m2
                                                                      : kernel::e2m1);
  draft.biased = true;
}

}  // namespace ranvier
