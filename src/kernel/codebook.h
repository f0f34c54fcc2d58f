// Symmetric codebooks of 2 to 16 values: the symbol of a value is the number of the nearest entry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::kernel {

// The positive half of a codebook, ascending; the other half mirrors it. Symbol: 2 * index + (1 if negative).
struct Codebook {
  std::array<float, 8> values{};
  std::size_t half = 1;  // entries in use: 1, 2, 4 or 8
};

// The nearest entry to value * factor.
void to_codebook(const Codebook&, const float* values, float factor, std::size_t count, std::uint8_t* symbols);
// value = entry * factor, the same bits on every instruction set. Symbols beyond the codebook count modulo its size.
void from_codebook(const Codebook&, const std::uint8_t* symbols, float factor, std::size_t count, float* values);

}  // namespace ranvier::kernel
