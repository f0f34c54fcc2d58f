// Reductions, compiled once for each instruction set that Highway knows on this architecture.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernel/average_integers.h"
#include "ranvier/error.h"
#include "ranvier/kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/reduce.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/formats-inl.h"
#include "kernel/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

template <class Format, class Op>
struct Reduction {
  Op op;
  std::byte* to;
  const std::byte* a;
  const std::byte* b;

  using Lane = typename Format::Lane;

  template <std::size_t lanes>
  HWY_INLINE std::size_t lanes_of() const {
    return hn::Lanes(typename Format::template Tag<lanes>());
  }

  template <std::size_t lanes>
  HWY_INLINE void run(std::size_t first) const {
    const typename Format::template Tag<lanes> d;
    const std::size_t at = first * sizeof(Lane);
    store(Format::apply(op, d, load(d, a + at), load(d, b + at)), d, to + at);
  }

  // The elements behind the last whole lane; the rest of theirs is zero.
  HWY_INLINE void run_part(std::size_t first, std::size_t bytes) const {
    const typename Format::template Tag<1> d;
    const std::size_t at = first * sizeof(Lane);
    Lane left = 0, right = 0;
    std::memcpy(&left, a + at, bytes);
    std::memcpy(&right, b + at, bytes);
    const Lane result = hn::GetLane(Format::apply(op, d, hn::Set(d, left), hn::Set(d, right)));
    std::memcpy(to + at, &result, bytes);
  }
};

template <class Format, class Op>
HWY_INLINE void reduce_all(const Op& op, void* to, const void* a, const void* b, std::size_t count) {
  const Reduction<Format, Op> reduction{op, static_cast<std::byte*>(to), static_cast<const std::byte*>(a),
                                        static_cast<const std::byte*>(b)};
  const std::size_t bytes = count * Format::element_bytes;
  const std::size_t lanes = bytes / sizeof(typename Format::Lane);
  walk<Format::most_lanes>(lanes, reduction);
  if constexpr (Format::element_bytes < sizeof(typename Format::Lane))
    if (const std::size_t rest = bytes % sizeof(typename Format::Lane)) reduction.run_part(lanes, rest);
}

template <class Format, class Op>
void reduce_with(void* to, const void* a, const void* b, std::size_t count, Rank) {
  reduce_all<Format>(Op{}, to, a, b, count);
}

template <class Format, class Float>
void average_with(void* to, const void* a, const void* b, std::size_t count, Rank divisor) {
  if (divisor > 1)
    reduce_all<Format>(Average<Float>{static_cast<Float>(divisor)}, to, a, b, count);
  else
    reduce_all<Format>(Sum{}, to, a, b, count);
}

template <class Format, class Float>
ReduceFunction float_function(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return &reduce_with<Format, Sum>;
    case ReduceOp::average:
      return &average_with<Format, Float>;
    case ReduceOp::product:
      return &reduce_with<Format, Product>;
    case ReduceOp::min:
      return &reduce_with<Format, FloatMin>;
    case ReduceOp::max:
      return &reduce_with<Format, FloatMax>;
    case ReduceOp::bit_and:
    case ReduceOp::bit_or:
    case ReduceOp::bit_xor:
      break;
  }
  return nullptr;
}

template <class Signed, class Unsigned, class Multiplied = Unsigned>
ReduceFunction integer_function(ReduceOp op, DType type) {
  switch (op) {
    case ReduceOp::sum:
      return &reduce_with<Unsigned, Sum>;
    case ReduceOp::average:
      return average_integers(type);
    case ReduceOp::product:
      return &reduce_with<Multiplied, Product>;
    case ReduceOp::min:
      return &reduce_with<Signed, Min>;
    case ReduceOp::max:
      return &reduce_with<Signed, Max>;
    case ReduceOp::bit_and:
      return &reduce_with<Unsigned, BitAnd>;
    case ReduceOp::bit_or:
      return &reduce_with<Unsigned, BitOr>;
    case ReduceOp::bit_xor:
      return &reduce_with<Unsigned, BitXor>;
  }
  return nullptr;
}

ReduceFunction boolean_function(ReduceOp op) {
  using Bytes8 = Plain<std::uint8_t>;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bit_or:
      return &reduce_with<Bytes8, BitOr>;
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::bit_and:
      return &reduce_with<Bytes8, BitAnd>;
    case ReduceOp::bit_xor:
      return &reduce_with<Bytes8, BitXor>;
    case ReduceOp::average:
      break;
  }
  return nullptr;
}

// Null where `op` has no meaning on `type`.
ReduceFunction find_function(ReduceOp op, DType type) {
  switch (type) {
    case DType::f32:
      return float_function<Plain<float>, float>(op);
    case DType::f64:
      return float_function<Plain<double>, double>(op);
    case DType::f16:
      return float_function<F16, float>(op);
    case DType::bf16:
      return float_function<Bf16Pair, float>(op);
    case DType::i8:
      return integer_function<Plain<std::int8_t>, Plain<std::uint8_t>, BytePair>(op, type);
    case DType::u8:
      return integer_function<Plain<std::uint8_t>, Plain<std::uint8_t>, BytePair>(op, type);
    case DType::i16:
      return integer_function<Plain<std::int16_t>, Plain<std::uint16_t>>(op, type);
    case DType::i32:
      return integer_function<Plain<std::int32_t>, Plain<std::uint32_t>>(op, type);
    case DType::i64:
      return integer_function<Plain<std::int64_t>, Plain<std::uint64_t>>(op, type);
    case DType::boolean:
      return boolean_function(op);
  }
  return nullptr;
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(find_function);

ReduceFunction reduce_function(ReduceOp op, DType type) {
  if (const ReduceFunction found = HWY_DYNAMIC_DISPATCH(find_function)(op, type)) return found;
  throw Error(ErrorKind::usage, fmt::format("the reduction '{}' is not defined on {}; reduce with another operation or "
                                            "convert the values first",
                                            name_of(op), name_of(type)));
}

void reduce(ReduceOp op, DType type, void* to, const void* a, const void* b, std::size_t count, Rank divisor) {
  reduce_function(op, type)(to, a, b, count, divisor);
}

}  // namespace ranvier::kernel
#endif
