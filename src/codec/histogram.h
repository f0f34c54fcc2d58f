// How often each byte occurs.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace ranvier {

using Histogram = std::array<std::uint32_t, 256>;

Histogram histogram_of(std::span<const std::uint8_t> symbols);

// The empirical entropy times the number of symbols, in bits: what no code of single symbols goes below.
double entropy_bits(const Histogram&);

}  // namespace ranvier
