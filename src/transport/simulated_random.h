// The generator behind simulated worlds. The standard's distributions differ between libraries; a seed written down in
// a bug report must mean the same run everywhere.
#pragma once

#include <cstdint>

namespace ranvier::simulated {

// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // 0 … bound-1; the bias of the remainder is below 2^-32 for every bound that is used here.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

  bool happens(double probability) {
    return probability > 0 && static_cast<double>(next() >> 11) * 0x1p-53 < probability;
  }

 private:
  std::uint64_t state_;
};

}  // namespace ranvier::simulated
