// The few words that every part of ranvier shares: ranks, bytes, element types, reductions, collectives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace ranvier {

using Rank = std::int32_t;  // 0 … world-1 inside one communicator
using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

enum class DType : std::uint8_t { f32, f64, f16, bf16, i8, i16, i32, i64, u8, boolean };
inline constexpr std::array all_dtypes{DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,
                                       DType::i16, DType::i32, DType::i64, DType::u8,   DType::boolean};

enum class ReduceOp : std::uint8_t { sum, average, product, min, max, bit_and, bit_or, bit_xor };
inline constexpr std::array all_reduce_ops{ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::min,
                                           ReduceOp::max, ReduceOp::bit_and, ReduceOp::bit_or,  ReduceOp::bit_xor};

enum class Collective : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  neighbor_exchange,
  barrier,
  send,
  recv
};
inline constexpr std::array all_collectives{
    Collective::all_reduce,        Collective::reduce,     Collective::broadcast, Collective::all_gather,
    Collective::reduce_scatter,    Collective::all_to_all, Collective::gather,    Collective::scatter,
    Collective::neighbor_exchange, Collective::barrier,    Collective::send,      Collective::recv};

// What a binding knows of a call beyond what the engine works with. Ranks that exchange data compare it, but for what is
// 0 on either side; what they have called before is compared with it, zeros and all.
struct CallLabel {
  std::uint8_t element = 0;  // the element's type, where a DType stands for several: see ElementName; 255 is ranvier's
  std::uint8_t list = 0;     // of one call with many vectors: how many, or 255 for more
  // A hash of the vector's shape; not of uneven parts. Of all_to_all that of a part, where all that this rank sends and
  // receives have the same: whoever has parts of several leaves it 0.
  std::uint16_t shape = 0;

  friend bool operator==(const CallLabel&, const CallLabel&) = default;
};
// What errors call an element type of labels.
using ElementName = std::string (*)(std::uint8_t element);

constexpr std::size_t size_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
      return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 1;
  }
  return 0;
}

constexpr bool is_floating(DType type) {
  return type == DType::f32 || type == DType::f64 || type == DType::f16 || type == DType::bf16;
}

// Whether `op` has a meaning on `type`: the bitwise ones need integers or booleans, and booleans have no average.
constexpr bool is_defined(ReduceOp op, DType type) {
  const bool bitwise = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  return bitwise ? !is_floating(type) : op != ReduceOp::average || type != DType::boolean;
}

// Names as they stand in flags, files and messages ("bf16", "average", "all_reduce").
std::string_view name_of(DType);
std::string_view name_of(ReduceOp);
std::string_view name_of(Collective);
std::optional<DType> parse_dtype(std::string_view);
std::optional<ReduceOp> parse_reduce_op(std::string_view);
std::optional<Collective> parse_collective(std::string_view);

// The C++ types that collectives take directly: `all_reduce(std::span<float>)`.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<std::int16_t> {
  static constexpr DType value = DType::i16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::boolean;
};

// Memory of `count` elements of one type. It owns nothing; the memory outlives the operation that uses it.
struct TypedSpan {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;

  TypedSpan() = default;
  TypedSpan(void* memory, std::size_t elements, DType type) : data(memory), count(elements), dtype(type) {}
  template <class Range>
  requires requires(Range& range, void* memory) {
    DTypeOf<typename std::remove_cvref_t<Range>::value_type>::value, range.size(), memory = range.data();
  }
  TypedSpan(Range&& range)  // NOLINT(google-explicit-constructor, bugprone-forwarding-reference-overload): spans and
                            // vectors are meant to convert
      : data(range.data()),
        count(range.size()),
        dtype(DTypeOf<typename std::remove_cvref_t<Range>::value_type>::value) {}

  std::size_t bytes() const { return count * size_of(dtype); }
};

// TCP ports from `first` to `last`; from 0: the one that the kernel picks.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;

  friend bool operator==(const PortRange&, const PortRange&) = default;
};

struct ConstTypedSpan {
  const void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::f32;

  ConstTypedSpan() = default;
  ConstTypedSpan(const void* memory, std::size_t elements, DType type) : data(memory), count(elements), dtype(type) {}
  ConstTypedSpan(const TypedSpan& span)  // NOLINT(google-explicit-constructor)
      : data(span.data), count(span.count), dtype(span.dtype) {}
  template <class Range>
  requires requires(const Range& range) {
    DTypeOf<typename std::remove_cv_t<typename Range::value_type>>::value, range.data(), range.size();
  }
  ConstTypedSpan(const Range& range)  // NOLINT(google-explicit-constructor)
      : data(range.data()), count(range.size()), dtype(DTypeOf<std::remove_cv_t<typename Range::value_type>>::value) {}

  std::size_t bytes() const { return count * size_of(dtype); }
};

}  // namespace ranvier
