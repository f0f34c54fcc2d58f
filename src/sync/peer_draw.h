// Which peer a worker of ad-psgd averages with next: those with an even number ask, a random one with an odd number
// each time. That those who ask never ask one another is what keeps them from waiting in a circle.
#pragma once

#include <cstdint>
#include <random>

#include "ranvier/types.h"

namespace ranvier::sync {

class PeerDraw {
 public:
  // Of a rank that asks, in a world of at least two.
  PeerDraw(std::uint64_t seed, Rank rank, Rank world)
      : random_(seed * 1'000'003 + static_cast<std::uint64_t>(rank)), asked_(static_cast<std::uint64_t>(world / 2)) {}
  static bool asks(Rank rank) { return rank % 2 == 0; }
  Rank next() { return static_cast<Rank>(1 + 2 * (random_() % asked_)); }

 private:
  std::mt19937_64 random_;
  std::uint64_t asked_;  // ranks
};

}  // namespace ranvier::sync
