// The k values of the largest magnitude.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ranvier {

// What is zero is what the others take it for without being told. `taken`: only to fill up.
enum class Zeros { left_out, taken };
// k of them (of equal ones at the border, the first), ascending indices; fewer where zeros are left out and fewer than
// k values are none.
void choose_top_k(std::span<const float> values, std::size_t k, std::vector<std::uint32_t>& chosen,
                  Zeros zeros = Zeros::left_out);
// About k: those above a threshold that a sample of the values suggests, corrected until their number is within
// 0.8 to 1.25 k (at most 10 times, then exactly). Lin et al., "Deep Gradient Compression", section 3 of
// arXiv:1712.01887.
void choose_by_sample(std::span<const float> values, std::size_t k, std::uint64_t seed,
                      std::vector<std::uint32_t>& chosen);
// The most that choose_by_sample gives.
constexpr std::size_t most_by_sample(std::size_t k) { return k + k / 4 + 1; }
// Indices of magnitudes of at least `threshold`, the first `most` of them.
void choose_above(std::span<const float> values, float threshold, std::size_t most, std::vector<std::uint32_t>& chosen);

}  // namespace ranvier
