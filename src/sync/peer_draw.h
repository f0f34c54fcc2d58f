// Which peer a worker of ad-psgd averages with next: those with an odd number ask, and of an odd number of ranks the
// last one, a random one of the others each time. That those who ask never ask one another is what keeps them from
// waiting in a circle. Rank 0, which gives samples out, is one that is asked: who asks it for samples has had its last
// mean by then, so that no parameters are in front of the request, nor of the answer.
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
  static bool asks(Rank rank, Rank world) { return rank % 2 == 1 || rank + 1 == world; }
  Rank next() { return static_cast<Rank>(2 * (random_() % asked_)); }

 private:
  std::mt19937_64 random_;
  std::uint64_t asked_;  // ranks
};

}  // namespace ranvier::sync
