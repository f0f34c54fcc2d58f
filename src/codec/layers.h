// layers=: how many values each tensor may send, in place of the largest wherever they stand.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ranvier/codec.h"

namespace ranvier {

// Shares k among pieces of tensors, in proportion to each piece's size times the size of its tensor to the power of
// `exponent` - 1, but never more than a piece has. What is left of a share below 1 counts from time to time, by the
// seed, so that no piece waits for ever. The shares add up to k, where the pieces have so many values.
std::vector<std::size_t> shares_of_tensors(std::size_t k, std::span<const TensorPiece> pieces, double exponent,
                                           std::uint64_t seed);
// The largest magnitudes of each piece: ascending indices, k at most.
void choose_by_tensor(std::span<const float> values, std::size_t k, std::span<const TensorPiece> pieces,
                      double exponent, std::uint64_t seed, std::vector<std::uint32_t>& chosen);

}  // namespace ranvier
