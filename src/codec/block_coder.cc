#include "codec/block_coder.h"

#include <algorithm>
#include <cstring>

#include "codec/code_errors.h"

namespace ranvier {
namespace {

// The first byte of a block.
enum class Mode : std::uint8_t { plain, repeated, coded };

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
    const std::size_t length = encode_one(symbols.first(block_symbols), out.subspan(used + length_bytes));
    put_length(length, out.subspan(used));
    used += length_bytes + length;
    symbols = symbols.subspan(block_symbols);
  }
  return symbols.empty() ? used : used + encode_one(symbols, out.subspan(used));
}

void BlockCoder::decode(ConstBytes code, std::span<std::uint8_t> out) const {
  if (!decode_all(code, out)) not_a_code(name(), code.size(), out.size(), "symbols");
}

bool BlockCoder::decode_all(ConstBytes code, std::span<std::uint8_t> out) const {
  while (out.size() > block_symbols) {
    if (code.size() < length_bytes) return false;
    const std::size_t length = take_length(code);
    code = code.subspan(length_bytes);
    if (length > code.size() || !decode_one(code.first(length), out.first(block_symbols))) return false;
    code = code.subspan(length);
    out = out.subspan(block_symbols);
  }
  return out.empty() ? code.empty() : decode_one(code, out);
}

std::size_t BlockCoder::encode_one(std::span<const std::uint8_t> symbols, Bytes out) const {
  if (all_equal(symbols)) {
    out[0] = static_cast<std::byte>(Mode::repeated);
    out[1] = static_cast<std::byte>(symbols[0]);
    return 2;
  }
  const Bytes body = out.subspan(1, symbols.size() - 1);
  if (const std::size_t length = symbols.size() < fewest_coded ? 0 : encode_block(symbols, body)) {
    out[0] = static_cast<std::byte>(Mode::coded);
    return 1 + length;
  }
  out[0] = static_cast<std::byte>(Mode::plain);
  std::memcpy(out.data() + 1, symbols.data(), symbols.size());
  return 1 + symbols.size();
}

bool BlockCoder::decode_one(ConstBytes code, std::span<std::uint8_t> out) const {
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
  }
  return false;
}

}  // namespace ranvier
