// Loops over symbols of a byte each: numbered anew, and apart from the one of them that comes most often.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ranvier::kernel {

// How often each symbol below 16 occurs; of few kinds of symbols faster than a table, where equal ones wait for each
// other's store. Returns the sum.
inline constexpr std::size_t small_symbols = 16;
std::size_t count_small(const std::uint8_t* symbols, std::size_t count, std::span<std::uint32_t, small_symbols> counts);

// The least and the greatest symbol; of none, 255 and 0.
struct Extremes {
  std::uint8_t least, most;
};
Extremes extremes_of(const std::uint8_t* symbols, std::size_t count);

// From `zero` outwards: zero becomes 0, zero - 1, zero + 1, zero - 2 and so on 1, 2, 3, up to 2 * zero; symbols beyond
// that stay what they are. `out` may be `symbols`.
void fold_symbols(unsigned zero, const std::uint8_t* symbols, std::size_t count, std::uint8_t* out);
void unfold_symbols(unsigned zero, const std::uint8_t* folded, std::size_t count, std::uint8_t* out);

// Bit k of byte g: whether symbol 8 g + k is another one than `frequent`.
void mark_others(const std::uint8_t* symbols, std::size_t groups, std::uint8_t frequent, std::uint8_t* bits);
std::size_t count_bits(const std::uint8_t* bits, std::size_t bytes);

// Groups are eight symbols, of which the marked ones are copied one behind the other. Returns the end of what it wrote,
// behind which up to eight bytes are overwritten.
std::uint8_t* take_marked(const std::uint8_t* symbols, const std::uint8_t* bits, std::size_t groups, std::uint8_t* out);
// The reverse: `marked` where bits say so and elsewhere `frequent`, as many groups as there are and for as long as
// eight bytes are left between `marked`, which moves up as they are taken, and `end`. They may lie in `out`, if none is
// written over before it is taken. Returns the groups done.
std::size_t put_marked(const std::uint8_t* bits, std::size_t groups, std::uint8_t frequent, const std::uint8_t*& marked,
                       const std::uint8_t* end, std::uint8_t* out);

}  // namespace ranvier::kernel
