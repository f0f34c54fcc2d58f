// Zstandard (Collet and Kucherawy, RFC 8878) through its library, to compare with. Level 1: higher ones look longer for
// repeats, of which quantized gradients have hardly any.
#include <zstd.h>

#include "codec/block_coder.h"

namespace ranvier {
namespace {

constexpr int level = 1;

class Zstd final : public BlockCoder {
 public:
  Zstd() : BlockCoder("zstd") {}

 protected:
  std::size_t encode_block(std::span<const std::uint8_t> symbols, Bytes out) const override {
    const std::size_t length = ZSTD_compress(out.data(), out.size(), symbols.data(), symbols.size(), level);
    return ZSTD_isError(length) ? 0 : length;
  }

  bool decode_block(ConstBytes code, std::span<std::uint8_t> out) const override {
    return ZSTD_decompress(out.data(), out.size(), code.data(), code.size()) == out.size();
  }
};

}  // namespace

std::string_view zstd_version() { return ZSTD_versionString(); }

std::unique_ptr<Coder> zstd() { return std::make_unique<Zstd>(); }

}  // namespace ranvier
