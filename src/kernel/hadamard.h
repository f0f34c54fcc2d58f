// The randomized Hadamard transform of blocks of a power of two, orthonormal: it spreads an outlier evenly over its
// block and makes coordinates nearly normal, which is what few-bit quantizers want. d log2(d) additions a block.
//
// Suresh et al., "Distributed Mean Estimation with Limited Communication", ICML 2017 (arXiv:1611.00429).
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::kernel {

// to <- H D from in blocks of `block` (a power of two, at most 4096), D random signs by (seed, index), H the
// Hadamard matrix over sqrt(block). What is left at the end is transformed in blocks of the powers of two that add up
// to it, largest first. `to` may be `from` exactly. `inverse`: D H, its exact inverse but for rounding. The same bits
// on every instruction set.
void hadamard(const float* from, float* to, std::size_t count, std::size_t block, std::uint32_t seed);
inline void hadamard(float* values, std::size_t count, std::size_t block, std::uint32_t seed) {
  hadamard(values, values, count, block, seed);
}
void inverse_hadamard(float* values, std::size_t count, std::size_t block, std::uint32_t seed);

}  // namespace ranvier::kernel
