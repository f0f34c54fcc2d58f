// THC: a grid that all ranks share, whose codes can be added as integers: the arithmetic, apart from how codes travel.
// Values are spread, encoded and added up as bytes; the sum is decoded and gathered again. src/exchange/shared_grid.cc
// has the exchange and the source; the hook of the Python package does the same over any process group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ranvier/exchange.h"

namespace ranvier {

class SharedGrid {
 public:
  static constexpr std::size_t block = 1024;  // values that share a norm

  // Fields of 4 or 8 bits hold the sum of `world` codes. Throws Error{usage} where they hold none.
  SharedGrid(unsigned bits, Rank world);
  // Of one code; fewer than 2 where a field is too small for so many ranks.
  static std::uint32_t levels_for(unsigned bits, Rank world);
  // The end of the best grid of so many levels for normal values of deviation 1.
  static float half_range(std::uint32_t levels);

  // The randomized Hadamard transform, in place, the same for the same seed, and the norm of each block. False,
  // infinite norms and unchanged values where one is NaN, infinite or beyond 2^50.
  static bool spread(std::span<float> values, std::span<float> norms, std::uint32_t seed);
  // Its inverse.
  static void gather(std::span<float> values, std::uint32_t seed);

  std::size_t bytes(std::size_t count) const;
  // `values` are spread; `norms`: of each block, of the step before, the largest of all ranks'.
  void encode(std::span<const float> values, std::span<const float> norms, std::span<std::uint8_t> codes) const;
  // `codes` is the sum of those of `summed` ranks.
  void decode(std::span<const std::uint8_t> codes, std::span<const float> norms, Rank summed,
              std::span<float> values) const;

 private:
  float reach_of(float norm, std::size_t count) const;

  unsigned bits_;
  std::uint32_t levels_;
  float half_range_;
};

std::unique_ptr<Exchange> shared_grid_exchange(Communicator& comm, std::string spec, unsigned bits);

}  // namespace ranvier
