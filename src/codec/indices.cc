// Index sets: a bit for every possible index, or the gaps between indices in an integer code. For k indices spread
// evenly over n the gaps are nearly geometric, where Golomb codes are optimal (Gallager and van Voorhis, IEEE Trans.
// Information Theory 1975): 8.4 bits an index at 1 % for a bound of 8.1, against 32 bits plain.
//
// Code: a byte, the IndexCode and, times 4, Rice's r; then the bits of the bitmap, index 0 the lowest, or the code of
// first + 1 and of each difference to the index before; zeros to a whole byte. No index, no byte.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "codec/code_errors.h"
#include "codec/integer_code.h"
#include "ranvier/coding.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

using Indices = std::span<const std::uint32_t>;

constexpr int most_r = 31;
constexpr std::array all_codes{IndexCode::bitmap, IndexCode::golomb_rice, IndexCode::elias_gamma,
                               IndexCode::elias_delta};

std::size_t bytes_of(std::uint64_t bits) { return (bits + 7) / 8; }

// The most bits that Rice's code takes for any `count` indices: each quotient is rounded down, and all gaps together
// are at most the universe.
std::uint64_t most_rice_bits(std::size_t count, std::uint32_t universe, int r) {
  return count * (1ULL + static_cast<unsigned>(r)) + (universe >> r);
}

// The r with the least guarantee; those of real sets are next to it.
int safest_r(std::size_t count, std::uint32_t universe) {
  int best = 0;
  for (int r = 1; r <= most_r; ++r)
    if (most_rice_bits(count, universe, r) < most_rice_bits(count, universe, best)) best = r;
  return best;
}

template <class Function>
void for_each_gap(Indices indices, Function function) {
  std::uint32_t above = 0;  // one more than the index before
  for (const std::uint32_t index : indices) {
    function(index - above + 1);
    above = index + 1;
  }
}

template <class Code>
std::uint64_t bits_of(const Code& code, Indices indices) {
  std::uint64_t bits = 0;
  for_each_gap(indices, [&](std::uint32_t gap) { bits += static_cast<std::uint64_t>(code.bits(gap)); });
  return bits;
}

int shortest_r(Indices indices, std::uint32_t universe) {
  const int safest = safest_r(indices.size(), universe);
  int best = safest;
  for (const int r : {safest - 1, safest + 1})
    if (r >= 0 && r <= most_r && bits_of(GolombRice{r}, indices) < bits_of(GolombRice{best}, indices)) best = r;
  return best;
}

void require_set(Indices indices, std::uint32_t universe) {
  std::uint64_t least = 0;
  for (const std::uint32_t index : indices) {
    if (index < least || index >= universe)
      throw Error(ErrorKind::usage,
                  fmt::format("index {} does not belong where it stands: indices increase strictly and "
                              "are below {}; sort them and drop doubles first",
                              index, universe));
    least = index + 1ULL;
  }
}

void put_bitmap(Indices indices, Bytes out) {
  std::ranges::fill(out, std::byte{0});
  for (const std::uint32_t index : indices) out[index / 8] |= std::byte{1} << index % 8;
}

bool take_bitmap(ConstBytes bitmap, std::uint32_t universe, std::span<std::uint32_t> out) {
  if (bitmap.size() != bytes_of(universe)) return false;
  std::size_t found = 0;
  for (std::size_t byte = 0; byte < bitmap.size(); byte += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bitmap.data() + byte, std::min<std::size_t>(8, bitmap.size() - byte));
    if (static_cast<std::size_t>(std::popcount(word)) > out.size() - found) return false;
    for (; word != 0; word &= word - 1)
      out[found++] = static_cast<std::uint32_t>(8 * byte) + static_cast<std::uint32_t>(std::countr_zero(word));
  }
  return found == out.size() && (out.empty() || out.back() < universe);
}

template <class Code>
void put_gaps(const Code& code, Indices indices, Bytes out) {
  BitWriter writer(out);
  for_each_gap(indices, [&](std::uint32_t gap) { code.put(writer, gap); });
  writer.finish();
}

template <class Code>
bool take_gaps(const Code& code, ConstBytes bytes, std::uint32_t universe, std::span<std::uint32_t> out) {
  BitReader reader(bytes);
  std::uint64_t above = 0;
  for (std::uint32_t& index : out) {
    const std::uint32_t gap = code.take(reader);
    above += gap;
    if (gap == 0 || above > universe) return false;
    index = static_cast<std::uint32_t>(above - 1);
  }
  return reader.at_end();
}

bool take_indices(ConstBytes code, std::uint32_t universe, std::span<std::uint32_t> out) {
  if (out.empty()) return code.empty();
  if (code.empty()) return false;
  const auto first = static_cast<unsigned>(code[0]);
  const int r = static_cast<int>(first / all_codes.size());
  const ConstBytes rest = code.subspan(1);
  const auto kind = all_codes[first % all_codes.size()];
  if (kind == IndexCode::golomb_rice) return r <= most_r && take_gaps(GolombRice{r}, rest, universe, out);
  if (r != 0) return false;
  if (kind == IndexCode::elias_gamma) return take_gaps(EliasGamma(), rest, universe, out);
  if (kind == IndexCode::elias_delta) return take_gaps(EliasDelta(), rest, universe, out);
  return take_bitmap(rest, universe, out);
}

}  // namespace

std::string_view name_of(IndexCode code) {
  switch (code) {
    case IndexCode::bitmap:
      return "bitmap";
    case IndexCode::golomb_rice:
      return "golomb_rice";
    case IndexCode::elias_gamma:
      return "elias_gamma";
    case IndexCode::elias_delta:
      return "elias_delta";
  }
  return "unknown";
}

std::size_t max_index_bytes(std::size_t count, std::uint32_t universe) {
  if (count == 0) return 0;
  const std::uint64_t rice = most_rice_bits(count, universe, safest_r(count, universe));
  return 1 + bytes_of(std::min<std::uint64_t>(universe, rice));
}

std::size_t index_bytes(std::span<const std::uint32_t> indices, std::uint32_t universe, IndexCode code) {
  require_set(indices, universe);
  if (indices.empty()) return 0;
  switch (code) {
    case IndexCode::bitmap:
      break;
    case IndexCode::golomb_rice:
      return 1 + bytes_of(bits_of(GolombRice{shortest_r(indices, universe)}, indices));
    case IndexCode::elias_gamma:
      return 1 + bytes_of(bits_of(EliasGamma(), indices));
    case IndexCode::elias_delta:
      return 1 + bytes_of(bits_of(EliasDelta(), indices));
  }
  return 1 + bytes_of(universe);
}

std::size_t encode_indices(std::span<const std::uint32_t> indices, std::uint32_t universe, Bytes out,
                           std::optional<IndexCode> wanted) {
  IndexCode code = wanted.value_or(IndexCode::bitmap);
  std::size_t length = index_bytes(indices, universe, code);
  if (!wanted)
    for (const IndexCode other : all_codes)
      if (const std::size_t bytes = index_bytes(indices, universe, other); bytes < length) {
        code = other;
        length = bytes;
      }
  require_room(name_of(code), indices.size(), "indices", length, out.size());
  if (indices.empty()) return 0;

  const int r = code == IndexCode::golomb_rice ? shortest_r(indices, universe) : 0;
  out[0] = static_cast<std::byte>(static_cast<std::size_t>(code) + all_codes.size() * static_cast<std::size_t>(r));
  const Bytes rest = out.subspan(1, length - 1);
  switch (code) {
    case IndexCode::bitmap:
      put_bitmap(indices, rest);
      break;
    case IndexCode::golomb_rice:
      put_gaps(GolombRice{r}, indices, rest);
      break;
    case IndexCode::elias_gamma:
      put_gaps(EliasGamma(), indices, rest);
      break;
    case IndexCode::elias_delta:
      put_gaps(EliasDelta(), indices, rest);
      break;
  }
  return length;
}

void decode_indices(ConstBytes code, std::uint32_t universe, std::span<std::uint32_t> out) {
  if (!take_indices(code, universe, out))
    not_a_code("index", code.size(), out.size(), fmt::format("indices below {}", universe));
}

}  // namespace ranvier
