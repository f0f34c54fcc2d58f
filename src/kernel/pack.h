// Symbols of few levels, a byte each, packed into as few bits as their number needs, and back.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::kernel {

// 2 levels: 8 symbols a byte; 3: 5 a byte; up to 4, 8, 16: 2, 3, 4 bits each; more: a byte each.
std::size_t packed_bytes(unsigned levels, std::size_t count);
// `symbols` are below `levels`; `packed` has packed_bytes of them.
void pack(unsigned levels, const std::uint8_t* symbols, std::size_t count, void* packed);
// The other way. Any bytes give symbols, which fit in the bits of one but may not be below `levels`.
void unpack(unsigned levels, const void* packed, std::size_t count, std::uint8_t* symbols);

}  // namespace ranvier::kernel
