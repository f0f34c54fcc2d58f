// How each element type lies in vector lanes, and what a reduction does with two vectors of them. Included once per
// instruction set.
#include "hwy/highway.h"
#include "kernel/half-inl.h"

#if defined(RANVIER_KERNEL_FORMATS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RANVIER_KERNEL_FORMATS_INL_H
#undef RANVIER_KERNEL_FORMATS_INL_H
#else
#define RANVIER_KERNEL_FORMATS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// ---- Formats. A format names its lane, a tag for at most so many of them, the most that a vector holds, the bytes of
// an element, and applies an operation to two vectors.

template <class T>
struct Plain {
  using Lane = T;
  template <std::size_t lanes>
  using Tag = hn::CappedTag<T, lanes>;
  static constexpr std::size_t most_lanes = HWY_LANES(T);
  static constexpr std::size_t element_bytes = sizeof(T);

  template <class Op, class D, class V>
  static HWY_INLINE V apply(const Op& op, D d, V a, V b) {
    return op(d, a, b);
  }
};

// Two bf16 in a 32-bit lane: one becomes an f32 by a mask and the other by a shift, without the shuffles that widening
// the vector would take.
struct Bf16Pair {
  using Lane = std::uint32_t;
  template <std::size_t lanes>
  using Tag = hn::CappedTag<Lane, lanes>;
  static constexpr std::size_t most_lanes = HWY_LANES(Lane);
  static constexpr std::size_t element_bytes = 2;

  template <class Op, class D, class V>
  static HWY_INLINE V apply(const Op& op, D d, V a, V b) {
    const hn::RebindToFloat<D> f32;
    const auto upper = hn::Set(d, 0xFFFF0000u);
    const auto high = op(f32, hn::BitCast(f32, hn::And(a, upper)), hn::BitCast(f32, hn::And(b, upper)));
    const auto low = op(f32, hn::BitCast(f32, hn::ShiftLeft<16>(a)), hn::BitCast(f32, hn::ShiftLeft<16>(b)));
    return hn::Or(hn::And(round_to_bf16(high), upper), hn::ShiftRight<16>(round_to_bf16(low)));
  }
};

struct F16 {
  using Lane = std::uint16_t;
  template <std::size_t lanes>
  using Tag = hn::Rebind<Lane, hn::CappedTag<float, lanes>>;
  static constexpr std::size_t most_lanes = HWY_LANES(float);
  static constexpr std::size_t element_bytes = 2;

  template <class Op, class D, class V>
  static HWY_INLINE V apply(const Op& op, D, V a, V b) {
    const hn::Rebind<float, D> f32;
    return f32_to_f16(f32, op(f32, f16_to_f32(f32, a), f16_to_f32(f32, b)));
  }
};

// Two 8-bit integers in a 16-bit lane, for the product that no instruction set has in 8 bits.
struct BytePair {
  using Lane = std::uint16_t;
  template <std::size_t lanes>
  using Tag = hn::CappedTag<Lane, lanes>;
  static constexpr std::size_t most_lanes = HWY_LANES(Lane);
  static constexpr std::size_t element_bytes = 1;

  template <class Op, class D, class V>
  static HWY_INLINE V apply(const Op& op, D d, V a, V b) {
    const auto upper = hn::Set(d, std::uint16_t{0xFF00});
    const auto high = op(d, hn::And(a, upper), hn::ShiftRight<8>(b));
    return hn::Or(high, hn::AndNot(upper, op(d, a, b)));
  }
};

// ---- Operations. Integers are added and multiplied unsigned, where wrapping is defined.

struct Sum {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

template <class Float>
struct Average {
  Float divisor;
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return hn::Div(hn::Add(a, b), hn::Set(d, divisor));
  }
};

struct Product {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};

struct Min {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Min(a, b);
  }
};

struct Max {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Max(a, b);
  }
};

template <class D, class V>
HWY_INLINE V nan_if_either(D d, V a, V b, V otherwise) {
  const auto either = hn::Or(hn::IsNaN(a), hn::IsNaN(b));
  return hn::IfThenElse(either, hn::NaN(d), otherwise);
}

// The minimum and maximum of IEEE 754-2019. minps returns its second operand for two zeros or a NaN, so ranks that
// hold the operands the other way round would get other bits: both orders are taken, and merged by the sign bit.
struct FloatMin {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return nan_if_either(d, a, b, hn::Or(hn::Min(a, b), hn::Min(b, a)));
  }
};

struct FloatMax {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return nan_if_either(d, a, b, hn::And(hn::Max(a, b), hn::Max(b, a)));
  }
};

struct BitAnd {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::And(a, b);
  }
};

struct BitOr {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Or(a, b);
  }
};

struct BitXor {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Xor(a, b);
  }
};

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
