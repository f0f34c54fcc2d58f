// A table of 256 small numbers, one a symbol, in a few bytes: the first and the last that are not zero, then the steps
// from each to the next in the exponential Golomb code whose order suits them. Frequencies and code lengths of
// gradients run smoothly over neighbouring symbols, so a step takes two or three bits.
#pragma once

#include <array>
#include <cstdint>

#include "codec/bit_stream.h"

namespace ranvier {

using NumberTable = std::array<std::uint16_t, 256>;  // at most 2^15 each, not all zero

void put_table(BitWriter&, const NumberTable&);
// The bits that put_table takes.
std::size_t table_bits(const NumberTable&);
// False for what is no table of numbers up to `most`. Checks that the code is long enough for it.
bool take_table(BitReader&, std::uint32_t most, NumberTable&);

}  // namespace ranvier
