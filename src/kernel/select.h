// Choosing the values whose magnitude exceeds a threshold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ranvier::kernel {

// How many magnitudes are at least `threshold`.
std::size_t count_at_least(const float* values, std::size_t count, float threshold);
// The indices of the first `most` values of a magnitude of at least `threshold`, ascending; how many there are.
std::size_t collect_at_least(const float* values, std::size_t count, float threshold, std::uint32_t* indices,
                             std::size_t most);
// The k-th largest magnitude (k of 1 … count), exactly, by a radix selection on the bits: two passes over all values
// count exponents and leading mantissa bits, the third looks at one bucket only.
float kth_magnitude(const float* values, std::size_t count, std::size_t k);

}  // namespace ranvier::kernel
