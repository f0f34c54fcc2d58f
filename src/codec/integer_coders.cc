// The integer codes of integer_code.h as coders of bytes: symbol s is coded as the number s + 1, so 0 is the shortest.
// Fold signed values first: 0, -1, 1, -2, … -> 0, 1, 2, 3, … The Golomb-Rice code of a block begins with a byte, its r.
#include <algorithm>
#include <array>

#include "codec/block_coder.h"
#include "codec/histogram.h"
#include "codec/integer_code.h"

namespace ranvier {
namespace {

template <class Code>
std::size_t put_symbols(const Code& code, std::span<const std::uint8_t> symbols, Bytes out) {
  BitWriter writer(out);
  for (const std::uint8_t symbol : symbols) {
    code.put(writer, 1U + symbol);
    if (!writer.fits()) return 0;
  }
  const std::size_t length = writer.finish();
  return writer.fits() ? length : 0;
}

template <class Code>
bool take_symbols(const Code& code, ConstBytes bytes, std::span<std::uint8_t> out) {
  BitReader reader(bytes);
  for (std::uint8_t& symbol : out) {
    const std::uint32_t number = code.take(reader);
    if (number < 1 || number > 256) return false;
    symbol = static_cast<std::uint8_t>(number - 1);
  }
  return reader.at_end();
}

template <class Code>
class EliasCoder final : public BlockCoder {
 public:
  using BlockCoder::BlockCoder;

 protected:
  std::size_t encode_block(std::span<const std::uint8_t> symbols, Bytes out) const override {
    return put_symbols(Code(), symbols, out);
  }
  bool decode_block(ConstBytes code, std::span<std::uint8_t> out) const override {
    return take_symbols(Code(), code, out);
  }
};

class GolombRiceCoder final : public BlockCoder {
 public:
  GolombRiceCoder() : BlockCoder("golomb_rice") {}

 protected:
  static constexpr int most_r = 7;

  std::size_t encode_block(std::span<const std::uint8_t> symbols, Bytes out) const override {
    const int r = shortest(histogram_of(symbols));
    out[0] = static_cast<std::byte>(r);
    const std::size_t length = put_symbols(GolombRice{r}, symbols, out.subspan(1));
    return length == 0 ? 0 : 1 + length;
  }
  bool decode_block(ConstBytes code, std::span<std::uint8_t> out) const override {
    const int r = static_cast<int>(code[0]);
    return r <= most_r && take_symbols(GolombRice{r}, code.subspan(1), out);
  }

 private:
  static int shortest(const Histogram& histogram) {
    std::array<std::uint64_t, most_r + 1> bits{};
    for (int r = 0; r <= most_r; ++r)
      for (std::uint32_t symbol = 0; symbol < histogram.size(); ++symbol)
        bits[r] += histogram[symbol] * GolombRice{r}.bits(symbol + 1);
    return static_cast<int>(std::ranges::min_element(bits) - bits.begin());
  }
};

}  // namespace

std::unique_ptr<Coder> elias_gamma() { return std::make_unique<EliasCoder<EliasGamma>>("elias_gamma"); }
std::unique_ptr<Coder> elias_delta() { return std::make_unique<EliasCoder<EliasDelta>>("elias_delta"); }
std::unique_ptr<Coder> golomb_rice() { return std::make_unique<GolombRiceCoder>(); }

}  // namespace ranvier
