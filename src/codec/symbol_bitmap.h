// A symbol that comes often, as a bitmap of where it is not, and the others one behind the other. Gradients are zero in
// runs (behind a ReLU those of a silent unit are all zero), which bytes of the bitmap show and single symbols do not;
// and a symbol can then take less than a bit of a Huffman code.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ranvier {

// The most frequent symbol, if the entropy of such a bitmap's bytes and of the others is clearly below that of the
// symbols; judged by a sample.
std::optional<std::uint8_t> worth_a_bitmap(std::span<const std::uint8_t> symbols);

struct SymbolBitmap {
  std::vector<std::uint8_t> bits;  // of symbol i bit i % 8 of byte i / 8
  std::vector<std::uint8_t> others;
};
SymbolBitmap split(std::span<const std::uint8_t> symbols, std::uint8_t frequent);

// How many others there are; none for a bitmap of which bits beyond `symbols` are set.
std::optional<std::size_t> count_others(std::span<const std::uint8_t> bits, std::size_t symbols);
// The reverse of split(), in place: the others are the last of `symbols`.
void join(std::span<const std::uint8_t> bits, std::uint8_t frequent, std::size_t others,
          std::span<std::uint8_t> symbols);

}  // namespace ranvier
