// A grid that all ranks share, whose codes can be added as integers: the arithmetic, apart from how codes travel.
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
  // Fields of 4 or 8 bits hold the sum of `world` codes.
  SharedGrid(unsigned bits, Rank world);
  // Of one code; fewer than 2 where a field is too small for so many ranks.
  static std::uint32_t levels_for(unsigned bits, Rank world);
  // The end of the best grid of so many levels for normal values of deviation 1.
  static float half_range(std::uint32_t levels);

  std::size_t bytes(std::size_t count) const;
  // `norms`: of each block of 1024 values.
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
