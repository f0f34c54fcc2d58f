// f32 to and from bf16 and f16, as vectors. Included once per instruction set.
//
// Highway 1.0.3 truncates bf16, and where the CPU has no f16 instruction it also truncates f16 and loses infinities:
// what is here rounds to nearest even everywhere, keeps denormals, and turns every NaN into a quiet one.
#include "hwy/highway.h"

#if defined(RANVIER_KERNEL_HALF_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RANVIER_KERNEL_HALF_INL_H
#undef RANVIER_KERNEL_HALF_INL_H
#else
#define RANVIER_KERNEL_HALF_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Whether Highway's own f16 conversion is one instruction (F16C, NEON, SVE), which rounds to nearest even.
inline constexpr bool has_f16_instruction =
    (HWY_ARCH_X86 != 0 && HWY_TARGET <= HWY_AVX2) ||
    (HWY_ARCH_ARM_A64 != 0 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128);

// The upper half of each result lane is the bf16; the lower half is what was rounded away.
template <class V>
HWY_INLINE auto round_to_bf16(V value) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> bits;
  const auto v = hn::BitCast(bits, value);
  const auto odd = hn::And(hn::ShiftRight<16>(v), hn::Set(bits, 1u));
  const auto rounded = hn::Add(v, hn::Add(odd, hn::Set(bits, 0x7FFFu)));
  const auto quiet = hn::Or(v, hn::Set(bits, 0x400000u));
  return hn::IfThenElse(hn::RebindMask(bits, hn::IsNaN(value)), quiet, rounded);
}

template <class D32>
HWY_INLINE hn::Vec<D32> f16_to_f32(D32 d, hn::Vec<hn::Rebind<std::uint16_t, D32>> half) {
  if constexpr (has_f16_instruction) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D32>(), half));
  } else {
    const hn::RebindToUnsigned<D32> bits;
    const auto v = hn::PromoteTo(bits, half);
    const auto sign = hn::ShiftLeft<16>(hn::And(v, hn::Set(bits, 0x8000u)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(v, hn::Set(bits, 0x7FFFu)));
    const auto exponent = hn::And(magnitude, hn::Set(bits, 0x1Fu << 23));
    const auto normal = hn::Add(magnitude, hn::Set(bits, (127u - 15) << 23));
    const auto special = hn::Add(normal, hn::Set(bits, (128u - 16) << 23));  // infinity and NaN
    // A denormal m * 2^-24 is (2^-14 + m * 2^-24) - 2^-14, and that subtraction is exact.
    const auto biased = hn::Add(normal, hn::Set(bits, 1u << 23));
    const auto tiny = hn::BitCast(bits, hn::Sub(hn::BitCast(d, biased), hn::Set(d, 0x1p-14f)));
    const auto finite = hn::IfThenElse(hn::Eq(exponent, hn::Zero(bits)), tiny, normal);
    return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(hn::Eq(exponent, hn::Set(bits, 0x1Fu << 23)), special, finite)));
  }
}

template <class D32>
HWY_INLINE hn::Vec<hn::Rebind<std::uint16_t, D32>> f32_to_f16(D32 d, hn::Vec<D32> value) {
  const hn::Rebind<std::uint16_t, D32> half;
  if constexpr (has_f16_instruction) {
    return hn::BitCast(half, hn::DemoteTo(hn::Rebind<hwy::float16_t, D32>(), value));
  } else {
    // Signed lanes: Highway compares and narrows them on every target, and without its sign an f32 is one.
    const hn::RebindToSigned<D32> bits;
    const auto v = hn::BitCast(bits, value);
    const auto magnitude = hn::And(v, hn::Set(bits, 0x7FFFFFFF));
    const auto sign = hn::ShiftRight<16>(hn::BitCast(hn::RebindToUnsigned<D32>(), hn::Xor(v, magnitude)));
    // Below 2^-14 an f16 counts 2^-24 steps: adding 0.5 lets the adder round to them, in its last mantissa bits.
    const auto tiny =
        hn::Sub(hn::BitCast(bits, hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f))), hn::Set(bits, 126 << 23));
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(bits, 1));
    const auto rebiased = hn::Sub(magnitude, hn::Set(bits, (112 << 23) - 0xFFF));
    const auto normal = hn::ShiftRight<13>(hn::Add(rebiased, odd));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits, 113 << 23)), tiny, normal);
    // 65520 and more round to infinity; `normal` already does so below 2^16.
    const auto large =
        hn::IfThenElse(hn::Gt(magnitude, hn::Set(bits, 0xFF << 23)), hn::Set(bits, 0x7E00), hn::Set(bits, 0x7C00));
    const auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(bits, 143 << 23)), finite, large);
    return hn::DemoteTo(half, hn::Or(result, hn::BitCast(bits, sign)));
  }
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
