// SwitchML: integers of 8 bits with a scale that all ranks share, which can be added as they are: the arithmetic, apart
// from how codes travel. src/exchange/shared_scale.cc has the exchange and the source; the hook of the Python package
// does the same over any process group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ranvier/exchange.h"

namespace ranvier {

class SharedScale {
 public:
  static constexpr std::size_t block = 1024;  // values that share a scale

  // Throws Error{usage} where 8 bits hold no sum of codes of `world` ranks.
  explicit SharedScale(Rank world);

  // The largest magnitude of each block. False, and infinite ones, where a value is NaN, infinite or beyond 2^50.
  static bool measure(std::span<const float> values, std::span<float> largest);
  // `largest`: of each block, of all ranks. A code is the nearest of floor(127 / W) steps to either side of 0.
  void encode(std::span<const float> values, std::span<const float> largest, std::span<std::int8_t> codes) const;
  // `share` times the values of codes, or of sums of them.
  void decode(std::span<const std::int8_t> codes, std::span<const float> largest, float share,
              std::span<float> values) const;

 private:
  int steps_;
};

std::unique_ptr<Exchange> shared_scale_exchange(Communicator& comm, std::string spec);

}  // namespace ranvier
