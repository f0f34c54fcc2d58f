#include "kernel/small_floats.h"

#include <algorithm>
#include <bit>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/small_floats.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/random_bits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

void to_small_float_loop(const SmallFloat& format, const float* HWY_RESTRICT values, float factor, std::size_t count,
                         std::uint8_t* HWY_RESTRICT codes) {
  const int dropped = 23 - format.mantissa_bits;
  const std::uint32_t half = (1U << (dropped - 1)) - 1;
  const std::uint32_t rebias = static_cast<std::uint32_t>(127 - format.bias) << format.mantissa_bits;
  const std::uint32_t first_normal = static_cast<std::uint32_t>(128 - format.bias) << 23;
  // Below the first normal value codes count equal steps: adding so large a number leaves their count in the last bits.
  const auto counter = static_cast<std::uint32_t>(128 - format.bias + dropped) << 23;
  const std::uint32_t sign_bit = 1U << (format.bits - 1);
  const int sign_shift = 32 - format.bits;
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i] * factor);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    const std::uint32_t normal = ((magnitude + half + ((magnitude >> dropped) & 1U)) >> dropped) - rebias;
    const std::uint32_t tiny =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(counter)) - counter;
    const std::uint32_t code = std::min(magnitude < first_normal ? tiny : normal, format.largest);
    codes[i] = static_cast<std::uint8_t>(code | (bits >> sign_shift & sign_bit));
  }
}

void to_powers_loop(const float* HWY_RESTRICT values, std::size_t count, unsigned top, std::uint32_t seed,
                    std::uint8_t* HWY_RESTRICT codes) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    // The mantissa is the probability of the power above: adding as many random bits carries into the exponent so
    // often.
    const std::uint32_t random = random_bits(seed, static_cast<std::uint32_t>(i)) >> 9;
    const std::uint32_t exponent = ((bits & 0x7FFFFFFFU) + random) >> 23;
    const std::uint32_t below = top + 1 - exponent;
    const bool zero = exponent == 0 || below > 127;
    codes[i] = static_cast<std::uint8_t>(zero ? 0 : (bits >> 24 & 0x80U) | below);
  }
}
void from_powers_loop(const std::uint8_t* HWY_RESTRICT codes, std::size_t count, unsigned top,
                      float* HWY_RESTRICT values) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t code = codes[i], below = code & 0x7FU;
    const std::uint32_t exponent = below == 0 || below > top ? 0 : std::min(top + 1 - below, 254U);
    values[i] = std::bit_cast<float>(exponent << 23 | (exponent == 0 ? 0 : (code & 0x80U) << 24));
  }
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(to_small_float_loop);
HWY_EXPORT(to_powers_loop);
HWY_EXPORT(from_powers_loop);

void to_small_float(const SmallFloat& format, const float* values, float factor, std::size_t count,
                    std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(to_small_float_loop)(format, values, factor, count, codes);
}
float from_small_float(const SmallFloat& format, std::uint8_t code) {
  const unsigned sign = 1U << (format.bits - 1);
  const unsigned magnitude = code & (sign - 1);
  if (magnitude > format.largest) return 0;
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const auto mantissa = static_cast<float>(magnitude & ((1U << format.mantissa_bits) - 1));
  const float one = std::ldexp(1.0F, format.mantissa_bits);
  const float value = exponent == 0 ? std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits)
                                    : std::ldexp(one + mantissa, exponent - format.bias - format.mantissa_bits);
  return (code & sign) != 0 ? -value : value;
}
void to_powers(const float* values, std::size_t count, unsigned top, std::uint32_t seed, std::uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(to_powers_loop)(values, count, top, seed, codes);
}
void from_powers(const std::uint8_t* codes, std::size_t count, unsigned top, float* values) {
  HWY_DYNAMIC_DISPATCH(from_powers_loop)(codes, count, top, values);
}

}  // namespace ranvier::kernel
#endif
