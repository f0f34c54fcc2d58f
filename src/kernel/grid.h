// Blocks of floats on a grid: symbol = value / scale, rounded, plus `limit`; one scale a block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::kernel {

// Symbols are 0 … 2 * limit, for the values -limit * scale … limit * scale.
struct Grid {
  std::size_t block = 64;
  int limit = 127;  // at most 127
  bool stochastic = false;
};

// The value that `limit` stands for in a block becomes its scale's limit-fold: scale = bf16(reach / limit), rounded up.
// A reach below 2^-118 gives the scale 0 and symbols that all mean 0.
std::uint16_t grid_scale(float reach, int limit);

// Each block on the grid of its scale (a bf16; of any alignment). Values beyond the grid's ends go to the ends.
// Stochastic: rounded up with the probability that makes the expectation exact, by bits drawn from (seed, index).
void to_grid(const Grid&, const float* values, std::size_t count, const void* scales, std::uint32_t seed,
             std::uint8_t* symbols);
// The same with every block's largest magnitude as its reach: writes the scales as well.
void to_largest_grid(const Grid&, const float* values, std::size_t count, void* scales, std::uint32_t seed,
                     std::uint8_t* symbols);
// value = (symbol - limit) * scale, the same bits on every instruction set. Symbols beyond 2 * limit mean what they
// say.
void from_grid(const Grid&, const std::uint8_t* symbols, std::size_t count, const void* scales, float* values);

}  // namespace ranvier::kernel
