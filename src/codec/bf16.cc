#include <fmt/format.h>

#include "ranvier/codec.h"
#include "ranvier/error.h"
#include "ranvier/kernel.h"

namespace ranvier {
namespace {

constexpr std::size_t bytes_per_value = 2;

class Bf16Codec final : public Codec {
 public:
  std::string_view spec() const override { return "bf16"; }
  std::size_t max_bytes(std::size_t count) const override { return bytes_per_value * count; }

  std::size_t encode(std::span<const float> values, Bytes out) const override {
    const std::size_t bytes = max_bytes(values.size());
    if (out.size() < bytes)
      throw Error(ErrorKind::usage, fmt::format("{} bytes are too few for the bf16 code of {} values; give encode {}",
                                                out.size(), values.size(), bytes));
    kernel::to_bf16(values.data(), out.data(), values.size());
    return bytes;
  }

  void decode(ConstBytes code, std::span<float> out) const override {
    if (code.size() != max_bytes(out.size()))
      throw Error(ErrorKind::mismatch,
                  fmt::format("the bf16 code of {} values has {} bytes, but {} came; give the same codec and bucket "
                              "sizes to every rank",
                              out.size(), max_bytes(out.size()), code.size()));
    kernel::from_bf16(code.data(), out.data(), out.size());
  }

  std::optional<DType> summable_as() const override { return DType::bf16; }
};

}  // namespace

std::unique_ptr<Codec> bf16_codec() { return std::make_unique<Bf16Codec>(); }

}  // namespace ranvier
