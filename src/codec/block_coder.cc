#include "codec/block_coder.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/code_errors.h"
#include "codec/symbol_bitmap.h"

namespace ranvier {
namespace {

// The first byte of a block.
enum class Mode : std::uint8_t { plain, repeated, coded, with_bitmap };

// Before every block but the last stands its length.
constexpr std::size_t length_bytes = 3;

bool all_equal(std::span<const std::uint8_t> symbols) {
  return std::memcmp(symbols.data(), symbols.data() + 1, symbols.size() - 1) == 0;
}

void put_length(std::size_t length, Bytes out) { std::memcpy(out.data(), &length, length_bytes); }

std::size_t take_length(ConstBytes code) {
  std::size_t length = 0;
  std::memcpy(&length, code.data(), length_bytes);
  return length;
}

}  // namespace

std::size_t BlockCoder::max_bytes(std::size_t count) const {
  const std::size_t blocks = (count + block_symbols - 1) / block_symbols;
  return count + blocks * (1 + length_bytes);
}

std::size_t BlockCoder::encode(std::span<const std::uint8_t> symbols, Bytes out) const {
  require_room(name(), symbols.size(), "symbols", max_bytes(symbols.size()), out.size());
  std::size_t used = 0;
  while (symbols.size() > block_symbols) {
    const std::size_t length = encode_one(symbols.first(block_symbols), out.subspan(used + length_bytes), bitmaps_);
    put_length(length, out.subspan(used));
    used += length_bytes + length;
    symbols = symbols.subspan(block_symbols);
  }
  return symbols.empty() ? used : used + encode_one(symbols, out.subspan(used), bitmaps_);
}

void BlockCoder::decode(ConstBytes code, std::span<std::uint8_t> out) const {
  if (!decode_all(code, out)) not_a_code(name(), code.size(), out.size(), "symbols");
}

bool BlockCoder::decode_all(ConstBytes code, std::span<std::uint8_t> out) const {
  while (out.size() > block_symbols) {
    if (code.size() < length_bytes) return false;
    const std::size_t length = take_length(code);
    code = code.subspan(length_bytes);
    if (length > code.size() || !decode_one(code.first(length), out.first(block_symbols), bitmaps_)) return false;
    code = code.subspan(length);
    out = out.subspan(block_symbols);
  }
  return out.empty() ? code.empty() : decode_one(code, out, bitmaps_);
}

std::size_t BlockCoder::encode_one(std::span<const std::uint8_t> symbols, Bytes out, Bitmaps bitmaps) const {
  if (all_equal(symbols)) {
    out[0] = static_cast<std::byte>(Mode::repeated);
    out[1] = static_cast<std::byte>(symbols[0]);
    return 2;
  }
  const Bytes body = out.subspan(1, symbols.size() - 1);
  if (bitmaps == Bitmaps::where_shorter && symbols.size() >= fewest_with_bitmap)
    if (const std::size_t length = encode_with_bitmap(symbols, body)) {
      out[0] = static_cast<std::byte>(Mode::with_bitmap);
      return 1 + length;
    }
  if (const std::size_t length = symbols.size() < fewest_coded ? 0 : encode_block(symbols, body)) {
    out[0] = static_cast<std::byte>(Mode::coded);
    return 1 + length;
  }
  out[0] = static_cast<std::byte>(Mode::plain);
  std::memcpy(out.data() + 1, symbols.data(), symbols.size());
  return 1 + symbols.size();
}

// The symbol, the length of the bitmap's block, that block, the block of the others. 0: not worth it.
std::size_t BlockCoder::encode_with_bitmap(std::span<const std::uint8_t> symbols, Bytes out) const {
  const auto frequent = worth_a_bitmap(symbols);
  if (!frequent) return 0;
  const auto [bits, others] = split(symbols, *frequent);
  // Whatever becomes of the two, they fit.
  if (others.empty() || 1 + length_bytes + max_bytes(bits.size()) + max_bytes(others.size()) > out.size()) return 0;
  out[0] = static_cast<std::byte>(*frequent);
  const Bytes rest = out.subspan(1 + length_bytes);
  const std::size_t length = encode_one(bits, rest, Bitmaps::never);
  put_length(length, out.subspan(1));
  return 1 + length_bytes + length + encode_one(others, rest.subspan(length), Bitmaps::never);
}

bool BlockCoder::decode_with_bitmap(ConstBytes code, std::span<std::uint8_t> out) const {
  if (out.size() < fewest_with_bitmap || code.size() < 1 + length_bytes) return false;
  const auto frequent = static_cast<std::uint8_t>(code[0]);
  const std::size_t length = take_length(code.subspan(1));
  code = code.subspan(1 + length_bytes);
  std::vector<std::uint8_t> bits((out.size() + 7) / 8);
  if (length > code.size() || !decode_one(code.first(length), bits, Bitmaps::never)) return false;
  const auto others = count_others(bits, out.size());
  if (!others || *others == 0 || !decode_one(code.subspan(length), out.last(*others), Bitmaps::never)) return false;
  join(bits, frequent, *others, out);
  return true;
}

bool BlockCoder::decode_one(ConstBytes code, std::span<std::uint8_t> out, Bitmaps bitmaps) const {
  if (code.empty()) return false;
  const ConstBytes body = code.subspan(1);
  switch (static_cast<Mode>(code[0])) {
    case Mode::plain:
      if (body.size() != out.size()) return false;
      std::memcpy(out.data(), body.data(), body.size());
      return true;
    case Mode::repeated:
      if (body.size() != 1) return false;
      std::memset(out.data(), static_cast<int>(body[0]), out.size());
      return true;
    case Mode::coded:
      return out.size() >= fewest_coded && !body.empty() && body.size() < out.size() && decode_block(body, out);
    case Mode::with_bitmap:
      return bitmaps == Bitmaps::where_shorter && decode_with_bitmap(body, out);
  }
  return false;
}

}  // namespace ranvier
