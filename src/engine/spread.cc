#include "engine/spread.h"

#include <algorithm>
#include <array>

#include "kernel/hadamard.h"
#include "kernel/transpose.h"

namespace ranvier::engine {
namespace {

constexpr std::size_t group_blocks = spread_group / spread_block;
// So many are rotated at a time: with one coefficient of each, a cache line of the row that they are dealt to is full.
constexpr std::size_t tile_blocks = 16;
// Not a power of two, or one coefficient of all blocks would compete for the same lines of the cache.
constexpr std::size_t stride = spread_block + 16;
using Tile = std::array<float, tile_blocks * stride>;

struct Place {
  std::size_t block;   // the first of a tile
  std::size_t blocks;  // in it
  std::size_t at;      // of the first block's first coefficient
  std::size_t row;     // from one coefficient of it to the next
};

template <class Body>
void each_tile(std::size_t values, const Body& body) {
  const std::size_t blocks = values / spread_block;
  for (std::size_t group = 0; group < blocks; group += group_blocks) {
    const std::size_t row = std::min(group_blocks, blocks - group);
    for (std::size_t block = 0; block < row; block += tile_blocks)
      body(Place{group + block, std::min(tile_blocks, row - block), group * spread_block + block, row});
  }
}

// Other signs for every block.
std::uint32_t seed_of_block(std::uint32_t seed, std::size_t block) {
  return (seed ^ static_cast<std::uint32_t>(block)) * 0x9E3779B1U + static_cast<std::uint32_t>(block);
}

}  // namespace

void spread_out(std::span<const float> values, std::span<float> spread, std::uint32_t seed, std::size_t group) {
  Tile tile;
  const std::size_t before = group * group_blocks;  // blocks
  each_tile(spread.size(), [&](const Place& place) {
    for (std::size_t i = 0; i < place.blocks; ++i) {
      float* const block = tile.data() + i * stride;
      const std::size_t first = std::min((place.block + i) * spread_block, values.size());
      const std::size_t given = std::min(spread_block, values.size() - first);
      std::copy_n(values.data() + first, given, block);
      std::fill_n(block + given, spread_block - given, 0.F);
      kernel::hadamard(block, spread_block, spread_block, seed_of_block(seed, before + place.block + i));
    }
    kernel::transpose(tile.data(), place.blocks, spread_block, stride, spread.data() + place.at, place.row);
  });
}

void bring_back(std::span<const float> spread, std::span<float> values, std::uint32_t seed, std::size_t group) {
  Tile tile;
  const std::size_t before = group * group_blocks;
  each_tile(spread.size(), [&](const Place& place) {
    if (place.block * spread_block >= values.size()) return;
    kernel::transpose(spread.data() + place.at, spread_block, place.blocks, place.row, tile.data(), stride);
    for (std::size_t i = 0; i < place.blocks; ++i) {
      const std::size_t first = (place.block + i) * spread_block;
      if (first >= values.size()) return;
      float* const block = tile.data() + i * stride;
      kernel::inverse_hadamard(block, spread_block, spread_block, seed_of_block(seed, before + place.block + i));
      std::copy_n(block, std::min(spread_block, values.size() - first), values.data() + first);
    }
  });
}

}  // namespace ranvier::engine
