// Huffman, "A Method for the Construction of Minimum-Redundancy Codes", Proc. IRE 1952; canonical (Schwartz and
// Kallick, CACM 1964), so that the lengths alone say the code; at most 12 bits a word, so that one look-up of 4 Ki
// entries decodes any word. A block is coded in four streams, quarters of its symbols, which a core decodes at once as
// it does not know where a word begins before it knows the one before (as Collet's Huff0 does).
//
// A word has at least one bit, too many for a symbol that comes most of the time: symbols of alphabets up to 16 are
// taken in groups, as many as a byte holds, and the groups are coded, where that is shorter.
//
// Code of a block: a byte, the number of kinds of symbols if they are grouped, else 0; in the first case another byte,
// the least symbol; the table of lengths, zeros to a whole byte; the lengths of the first three streams, three bytes
// each (short blocks have one stream and no length); the streams, words reversed, the first in the lowest bits, zeros
// to a whole byte.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "codec/block_coder.h"
#include "codec/code_lengths.h"
#include "codec/symbol_groups.h"

namespace ranvier {
namespace {

constexpr int most_word_bits = 12;
constexpr std::size_t words_at_once = 4;  // 48 bits, which fit 64 beside up to 7 that wait
constexpr std::size_t stream_length_bytes = 3;
constexpr std::size_t surely_grouped = 65536;  // from here on, the larger table costs next to nothing

constexpr std::size_t streams_for(std::size_t symbols) { return symbols < 1024 ? 1 : 4; }

// The symbols of stream `stream`: quarters, the last one takes what is left.
template <class Symbols>
Symbols part_of(Symbols symbols, std::size_t stream, std::size_t streams) {
  const std::size_t share = symbols.size() / streams;
  return stream + 1 < streams ? symbols.subspan(stream * share, share) : symbols.subspan(stream * share);
}

struct Word {
  std::uint16_t bits;  // reversed: the first bit is the lowest
  std::uint16_t length;
};

std::uint16_t reversed(std::uint32_t bits, int length) {
  std::uint32_t turned = 0;
  for (int i = 0; i < length; ++i, bits >>= 1) turned = turned << 1 | (bits & 1);
  return static_cast<std::uint16_t>(turned);
}

// The canonical code: words in the order of their lengths, and of the symbols among equal ones. False when the lengths
// do not fill the code space exactly.
bool assign_words(const NumberTable& lengths, std::array<Word, 256>& words) {
  std::uint32_t next = 0;
  for (int length = 1; length <= most_word_bits; ++length, next <<= 1)
    for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol)
      if (lengths[symbol] == length) {
        if (next >= 1U << length) return false;
        words[symbol] = {reversed(next++, length), static_cast<std::uint16_t>(length)};
      }
  return next == 2U << most_word_bits;
}

// ---- Encoding

NumberTable lengths_for(std::span<const std::uint8_t> bytes) {
  Histogram histogram = histogram_of(bytes);
  // Groups may be all the same where symbols are not; a code wants two words.
  if (histogram[bytes[0]] == bytes.size()) histogram[bytes[0] ^ 1] = 1;
  return code_lengths(histogram, most_word_bits);
}

std::size_t code_bits(const NumberTable& lengths, std::span<const std::uint8_t> bytes) {
  std::size_t bits = table_bits(lengths);
  for (const std::uint8_t byte : bytes) bits += lengths[byte];
  return bits;
}

// The bytes of one stream, or 0 if `out` is too small.
std::size_t put_stream(const std::array<Word, 256>& words, std::span<const std::uint8_t> symbols, Bytes out) {
  std::byte* at = out.data();
  const std::byte* const end = out.data() + out.size();
  std::uint64_t waiting = 0;
  int filled = 0;
  std::size_t i = 0;
  for (; i + words_at_once <= symbols.size() && end - at >= 8; i += words_at_once) {
    const Word a = words[symbols[i]], b = words[symbols[i + 1]], c = words[symbols[i + 2]], d = words[symbols[i + 3]];
    const std::uint64_t first = a.bits | std::uint64_t{b.bits} << a.length;
    const std::uint64_t second = c.bits | std::uint64_t{d.bits} << c.length;
    const int first_bits = a.length + b.length;
    waiting |= (first | second << first_bits) << filled;
    filled += first_bits + c.length + d.length;
    std::memcpy(at, &waiting, 8);
    at += filled / 8;
    waiting >>= filled & ~7;
    filled &= 7;
  }
  BitWriter rest({at, static_cast<std::size_t>(end - at)});
  rest.put(waiting, filled);
  for (; i < symbols.size(); ++i) rest.put(words[symbols[i]].bits, words[symbols[i]].length);
  const std::size_t tail = rest.finish();
  return rest.fits() ? static_cast<std::size_t>(at - out.data()) + tail : 0;
}

std::size_t put_streams(const std::array<Word, 256>& words, std::span<const std::uint8_t> symbols, Bytes out) {
  const std::size_t streams = streams_for(symbols.size());
  const std::size_t lengths_bytes = (streams - 1) * stream_length_bytes;
  if (out.size() < lengths_bytes) return 0;
  std::size_t used = lengths_bytes;
  for (std::size_t stream = 0; stream < streams; ++stream) {
    const std::size_t length = put_stream(words, part_of(symbols, stream, streams), out.subspan(used));
    if (length == 0) return 0;
    if (stream + 1 < streams) std::memcpy(out.data() + stream * stream_length_bytes, &length, stream_length_bytes);
    used += length;
  }
  return used;
}

// ---- Decoding

// What the next 12 bits begin with.
struct Entry {
  std::uint8_t symbol;
  std::uint8_t length;
};
using Table = std::array<Entry, 1 << most_word_bits>;

void fill_table(const std::array<Word, 256>& words, Table& table) {
  for (std::size_t symbol = 0; symbol < words.size(); ++symbol)
    if (const Word word = words[symbol]; word.length > 0)
      for (std::size_t bits = word.bits; bits < table.size(); bits += std::size_t{1} << word.length)
        table[bits] = {static_cast<std::uint8_t>(symbol), static_cast<std::uint8_t>(word.length)};
}

struct Stream {
  const std::byte* at;
  std::uint64_t bits = 0;  // from `at` backwards: the lowest is the next
  int count = 0;           // of the bits that are there
  std::uint8_t* out;

  // Tops up to at least 56 bits; reads eight bytes.
  void fill() {
    std::uint64_t more = 0;
    std::memcpy(&more, at, 8);
    bits |= more << count;
    at += (63 - count) >> 3;
    count |= 56;
  }
  void take(const Table& table, std::size_t to) {
    const Entry entry = table[bits & (table.size() - 1)];
    out[to] = entry.symbol;
    bits >>= entry.length;
    count -= entry.length;
  }
};

// The symbols behind the first `bits_done` bits, which may have passed the end; so may these: both are noticed there.
bool take_rest(const Table& table, ConstBytes code, std::size_t bits_done, std::span<std::uint8_t> out) {
  BitReader reader(code);
  reader.skip(bits_done);
  for (std::uint8_t& symbol : out) {
    const Entry entry = table[reader.peek() & (table.size() - 1)];
    symbol = entry.symbol;
    reader.skip(entry.length);
  }
  return reader.at_end();
}

bool take_streams(const Table& table, ConstBytes code, std::span<std::uint8_t> out) {
  std::array<ConstBytes, 4> codes;
  std::array<Stream, 4> streams;
  if (code.size() < 3 * stream_length_bytes) return false;
  ConstBytes rest = code.subspan(3 * stream_length_bytes);
  for (std::size_t i = 0; i < 4; ++i) {
    std::size_t length = rest.size();
    if (i < 3) {
      length = 0;
      std::memcpy(&length, code.data() + i * stream_length_bytes, stream_length_bytes);
    }
    if (length > rest.size()) return false;
    codes[i] = rest.first(length);
    rest = rest.subspan(length);
    streams[i] = {.at = codes[i].data(), .out = part_of(out, i, 4).data()};
  }

  // A stream may read on into the next one, or, when damaged, leave its own: never the whole code, as no fill moves by
  // more than 7 bytes and then reads 8.
  const std::byte* const end = code.data() + code.size();
  const std::size_t share = out.size() / 4;
  std::size_t done = 0;
  auto [a, b, c, d] = streams;
  while (true) {
    const std::ptrdiff_t room = end - std::max({a.at, b.at, c.at, d.at});
    const std::size_t rounds =
        std::min(room < 8 ? 0 : static_cast<std::size_t>(room - 8) / 7 + 1, (share - done) / words_at_once);
    if (rounds == 0) break;
    for (std::size_t round = 0; round < rounds; ++round, done += words_at_once) {
      a.fill();
      b.fill();
      c.fill();
      d.fill();
      for (std::size_t i = 0; i < words_at_once; ++i) {
        a.take(table, done + i);
        b.take(table, done + i);
        c.take(table, done + i);
        d.take(table, done + i);
      }
    }
  }
  streams = {a, b, c, d};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto bits_done =
        static_cast<std::size_t>(streams[i].at - codes[i].data()) * 8 - static_cast<std::size_t>(streams[i].count);
    if (!take_rest(table, codes[i], bits_done, part_of(out, i, 4).subspan(done))) return false;
  }
  return true;
}

class Huffman final : public BlockCoder {
 public:
  Huffman() : BlockCoder("huffman", Bitmaps::where_shorter) {}

 protected:
  std::size_t encode_block(std::span<const std::uint8_t> symbols, Bytes out) const override {
    const Alphabet alphabet = alphabet_of(symbols);
    if (alphabet.size > most_grouped_symbols) return encode_plain(symbols, out);
    const std::size_t size = group_size(alphabet.size);
    std::vector<std::uint8_t> groups((symbols.size() + size - 1) / size);
    group_symbols(symbols, alphabet, groups);
    if (symbols.size() < surely_grouped &&
        code_bits(lengths_for(symbols), symbols) < code_bits(lengths_for(groups), groups))
      return encode_plain(symbols, out);
    out[0] = static_cast<std::byte>(alphabet.size);
    out[1] = static_cast<std::byte>(alphabet.least);
    return and_header(2, encode_bytes(groups, out.subspan(2)));
  }

  bool decode_block(ConstBytes code, std::span<std::uint8_t> out) const override {
    const auto kinds = static_cast<unsigned>(code[0]);
    if (kinds == 0) return decode_bytes(code.subspan(1), out);
    if (kinds < 2 || kinds > most_grouped_symbols || code.size() < 2) return false;
    const Alphabet alphabet{static_cast<std::uint8_t>(code[1]), kinds};
    if (alphabet.least + alphabet.size > 256) return false;
    const std::size_t size = group_size(alphabet.size);
    std::vector<std::uint8_t> groups((out.size() + size - 1) / size);
    return decode_bytes(code.subspan(2), groups) && ungroup_symbols(groups, alphabet, out);
  }

 private:
  static std::size_t and_header(std::size_t header, std::size_t length) { return length == 0 ? 0 : header + length; }

  static std::size_t encode_plain(std::span<const std::uint8_t> symbols, Bytes out) {
    out[0] = std::byte{0};
    return and_header(1, encode_bytes(symbols, out.subspan(1)));
  }

  static std::size_t encode_bytes(std::span<const std::uint8_t> bytes, Bytes out) {
    const NumberTable lengths = lengths_for(bytes);
    std::array<Word, 256> words{};
    assign_words(lengths, words);
    BitWriter header(out);
    put_table(header, lengths);
    const std::size_t used = header.finish();
    if (!header.fits()) return 0;
    const std::size_t written = put_streams(words, bytes, out.subspan(used));
    return written == 0 ? 0 : used + written;
  }

  static bool decode_bytes(ConstBytes code, std::span<std::uint8_t> out) {
    BitReader header(code);
    NumberTable lengths;
    std::array<Word, 256> words{};
    if (!take_table(header, most_word_bits, lengths) || !header.align() || header.overrun() ||
        !assign_words(lengths, words))
      return false;
    Table table;
    fill_table(words, table);
    return streams_for(out.size()) == 1 ? take_rest(table, header.rest(), 0, out)
                                        : take_streams(table, header.rest(), out);
  }
};

}  // namespace

std::unique_ptr<Coder> huffman() { return std::make_unique<Huffman>(); }

}  // namespace ranvier
