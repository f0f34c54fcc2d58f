// What is sent with bounded loss is spread first, so that a lost packet costs a little everywhere and not all of one
// layer: a part of a vector is rotated in blocks by a randomized Hadamard transform, and the coefficients of many
// blocks are dealt over its pieces. A lost piece then takes about one coefficient of each of 256 blocks, and after
// rotating back a thousandth of the energy of every value there.
//
// E. Warraich et al., "OptiReduce: Resilient and Tail-Optimal AllReduce for Distributed Deep Learning in the Cloud",
// NSDI 2025.
//
// Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ranvier/transport.h"

namespace ranvier::engine {

inline constexpr std::size_t spread_block = 1024;
// As many blocks as a piece has values are spread together: of each a piece carries one coefficient.
inline constexpr std::size_t spread_group = PartialMessages::piece_bytes / sizeof(float) * spread_block;  // values
inline constexpr std::size_t values_a_piece = PartialMessages::piece_bytes / sizeof(float);
static_assert(spread_block % values_a_piece == 0);

// How a vector is cut: a part a rank, of whole blocks, padded with zeros; all parts have one size.
struct SpreadLayout {
  SpreadLayout(std::size_t count, Rank world)
      : values(count),
        part_values((count + spread_block * static_cast<std::size_t>(world) - 1) /
                    (spread_block * static_cast<std::size_t>(world)) * spread_block) {}

  std::size_t values;
  std::size_t part_values;

  std::size_t part_bytes() const { return part_values * sizeof(float); }
  std::size_t part_pieces() const { return part_values / values_a_piece; }
  std::size_t part_groups() const { return (part_values + spread_group - 1) / spread_group; }
  std::size_t begin_of(Rank part) const { return std::min(values, static_cast<std::size_t>(part) * part_values); }
  // Of the vector, without the padding.
  std::size_t size_of(Rank part) const { return begin_of(part + 1) - begin_of(part); }
};

// `values` and the zeros behind them, as they travel, into `spread`, which is as long or longer: whole blocks. All
// ranks give the same seed for a part. `group`: where in a part the values begin; a part may be spread group by group.
void spread_out(std::span<const float> values, std::span<float> spread, std::uint32_t seed, std::size_t group = 0);
// Its inverse but for rounding.
void bring_back(std::span<const float> spread, std::span<float> values, std::uint32_t seed, std::size_t group = 0);

}  // namespace ranvier::engine
