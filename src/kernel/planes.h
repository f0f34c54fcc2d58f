// Floats of 32 and 16 bits to planes of bytes, and back. Values are turned left by one bit first, so that the exponent
// of f32 and bf16 is a byte of its own, plane 0; the sign becomes the lowest bit of the last plane.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ranvier::kernel {

// planes[p] takes `count` bytes; `values` has any alignment.
void split_planes_32(const std::byte* values, std::size_t count, std::uint8_t* const (&planes)[4]);
void join_planes_32(const std::uint8_t* const (&planes)[4], std::size_t count, std::byte* values);
void split_planes_16(const std::byte* values, std::size_t count, std::uint8_t* const (&planes)[2]);
void join_planes_16(const std::uint8_t* const (&planes)[2], std::size_t count, std::byte* values);

}  // namespace ranvier::kernel
