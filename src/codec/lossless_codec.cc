// Floats without loss as a codec: every bit comes back, of NaN and infinity too. See coding.h.
#include "codec/lossless_codec.h"

#include <cstdint>
#include <vector>

#include "ranvier/coding.h"
#include "ranvier/kernel.h"

namespace ranvier {
namespace {

class LosslessCodec final : public Pipeline {
 public:
  LosslessCodec(PipelineSettings settings, DType type) : Pipeline(std::move(settings)), type_(type) {}
  std::size_t max_bytes(std::size_t count) const override { return max_lossless_bytes(count, type_); }
  std::size_t encode(std::span<const float> values, const CodecState&, Bytes out, const CodecKey&) const override {
    if (type_ == DType::f32) return encode_lossless({values.data(), values.size(), DType::f32}, out);
    std::vector<std::uint16_t>& halves = memory(values.size());
    kernel::to_bf16(values.data(), halves.data(), values.size());
    return encode_lossless({halves.data(), values.size(), DType::bf16}, out);
  }
  void decode(ConstBytes code, std::span<float> out, Combine combine) const override {
    if (type_ == DType::f32 && combine == Combine::replace)
      return decode_lossless(code, {out.data(), out.size(), DType::f32});
    thread_local std::vector<float> floats;
    floats.resize(out.size());
    if (type_ == DType::f32) {
      decode_lossless(code, {floats.data(), out.size(), DType::f32});
    } else {
      std::vector<std::uint16_t>& halves = memory(out.size());
      decode_lossless(code, {halves.data(), out.size(), DType::bf16});
      kernel::from_bf16(halves.data(), floats.data(), out.size());
    }
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = combine == Combine::add ? out[i] + floats[i] : floats[i];
  }

 private:
  static std::vector<std::uint16_t>& memory(std::size_t count) {
    thread_local std::vector<std::uint16_t> halves;
    halves.resize(count);
    return halves;
  }

  const DType type_;
};

}  // namespace

std::unique_ptr<Codec> lossless_codec(PipelineSettings settings, DType type) {
  return std::make_unique<LosslessCodec>(std::move(settings), type);
}

}  // namespace ranvier
