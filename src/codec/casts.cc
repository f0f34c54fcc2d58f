// Floats of fewer bits without any scale: a cast. bfloat16 keeps the range of f32 (Kalamkar et al., arXiv:1905.12322),
// IEEE half three more bits of precision (Micikevicius et al., "Mixed Precision Training", ICLR 2018), fp8 comes in two
// shapes (Micikevicius et al., "FP8 Formats for Deep Learning", arXiv:2209.05433).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "codec/stages.h"
#include "kernel/small_floats.h"
#include "kernel/vectors.h"
#include "ranvier/kernel.h"

namespace ranvier {
namespace {

class Fp32 final : public Quantizer {
 public:
  unsigned levels() const override { return 0; }
  std::size_t symbol_bytes() const override { return sizeof(float); }
  std::optional<DType> summable_as() const override { return DType::f32; }
  bool takes_all_floats() const override { return true; }
  std::size_t side_bytes(std::size_t) const override { return 0; }
  void quantize(std::span<const float> values, std::uint32_t, std::uint8_t* symbols, std::byte*) const override {
    std::memcpy(symbols, values.data(), values.size_bytes());
  }
  void dequantize(const std::uint8_t* symbols, const std::byte*, std::span<float> out) const override {
    std::memcpy(out.data(), symbols, out.size_bytes());
  }
};

// What is finite and beyond the range of f16 becomes its largest value: an infinity would turn up in everybody's sum.
constexpr float largest_f16 = 65504;

class Half final : public Quantizer {
 public:
  explicit Half(DType type) : type_(type) {}
  unsigned levels() const override { return 0; }
  std::size_t symbol_bytes() const override { return 2; }
  bool takes_all_floats() const override { return true; }
  std::size_t side_bytes(std::size_t) const override { return 0; }
  void quantize(std::span<const float> values, std::uint32_t, std::uint8_t* symbols, std::byte*) const override {
    if (type_ == DType::bf16) return kernel::to_bf16(values.data(), symbols, values.size());
    if (kernel::largest_magnitude(values.data(), values.size()) <= largest_f16)
      return kernel::to_f16(values.data(), symbols, values.size());
    std::array<float, chunk_values> clipped;
    for (std::size_t i = 0; i < values.size(); ++i)
      clipped[i] = std::isfinite(values[i]) ? std::clamp(values[i], -largest_f16, largest_f16) : values[i];
    kernel::to_f16(clipped.data(), symbols, values.size());
  }
  void dequantize(const std::uint8_t* symbols, const std::byte*, std::span<float> out) const override {
    type_ == DType::bf16 ? kernel::from_bf16(symbols, out.data(), out.size())
                         : kernel::from_f16(symbols, out.data(), out.size());
  }
  std::optional<DType> summable_as() const override { return type_; }

 private:
  DType type_;
};

class Fp8 final : public Quantizer {
 public:
  explicit Fp8(const kernel::SmallFloat& format) : format_(format) {
    for (std::size_t code = 0; code < values_.size(); ++code)
      values_[code] = kernel::from_small_float(format, static_cast<std::uint8_t>(code));
  }
  unsigned levels() const override { return 256; }
  std::size_t side_bytes(std::size_t) const override { return 0; }
  void quantize(std::span<const float> values, std::uint32_t, std::uint8_t* symbols, std::byte*) const override {
    kernel::to_small_float(format_, values.data(), 1, values.size(), symbols);
  }
  void dequantize(const std::uint8_t* symbols, const std::byte*, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = values_[symbols[i]];
  }

 private:
  kernel::SmallFloat format_;
  std::array<float, 256> values_;
};

}  // namespace

void add_fp32(Parameters&, Draft& draft) { draft.quantizer = std::make_unique<Fp32>(); }
void add_bf16(Parameters&, Draft& draft) { draft.quantizer = std::make_unique<Half>(DType::bf16); }
void add_fp16(Parameters&, Draft& draft) { draft.quantizer = std::make_unique<Half>(DType::f16); }
void add_fp8(Parameters& parameters, Draft& draft) {
  constexpr std::array<std::string_view, 2> formats{"e5m2", "e4m3"};
  const bool wide = parameters.choice("", "e5m2", formats) == "e5m2";
  draft.quantizer = std::make_unique<Fp8>(wide ? kernel::e5m2 : kernel::e4m3);
  draft.biased = true;
}

}  // namespace ranvier
