#include "conformance/values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ranvier::conformance {
namespace {

// Calls f(T{}) with the C++ type of an integer type.
template <class F>
auto with_integer(DType type, F f) {
  switch (type) {
    case DType::i8:
      return f(std::int8_t{});
    case DType::i16:
      return f(std::int16_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::u8:
    case DType::boolean:
      return f(std::uint8_t{});
    default:
      return f(std::int64_t{});
  }
}

double wrapped(DType type, std::int64_t value) {
  return with_integer(type, [&](auto t) { return static_cast<double>(static_cast<decltype(t)>(value)); });
}

// IEEE 754 binary16, for values that it holds exactly and that are zero or normal.
std::uint16_t half_of(double value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // 0.5 <= fraction < 1
  const auto mantissa = static_cast<unsigned>(std::ldexp(fraction, 11)) & 0x3ff;
  return static_cast<std::uint16_t>((value < 0 ? 0x8000U : 0U) | static_cast<unsigned>(exponent + 14) << 10 | mantissa);
}

double from_half(std::uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const double magnitude =
      exponent == 0 ? std::ldexp(half & 0x3ff, -24) : std::ldexp((half & 0x3ff) | 0x400, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void encode_one(DType type, double value, std::byte* to) {
  if (type == DType::f64) return put(to, value);
  if (type == DType::f32) return put(to, static_cast<float>(value));
  if (type == DType::f16) return put(to, half_of(value));
  // bfloat16 is the upper half of a float.
  if (type == DType::bf16)
    return put(to, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
  with_integer(type, [&](auto t) { put(to, static_cast<decltype(t)>(static_cast<std::int64_t>(value))); });
}

double decode_one(DType type, const std::byte* from) {
  if (type == DType::f64) return get<double>(from);
  if (type == DType::f32) return static_cast<double>(get<float>(from));
  if (type == DType::f16) return from_half(get<std::uint16_t>(from));
  if (type == DType::bf16)
    return static_cast<double>(std::bit_cast<float>(std::uint32_t{get<std::uint16_t>(from)} << 16));
  return with_integer(type, [&](auto t) { return static_cast<double>(get<decltype(t)>(from)); });
}

// Element `index` of what `rank` contributes.
double value_of(DType type, ReduceOp op, Rank rank, std::size_t index, std::size_t salt) {
  // Fibonacci hashing: neighbours in rank, index and salt get unrelated values.
  std::uint64_t hash = (static_cast<std::uint64_t>(rank) * 1'000'003 + index) * 1'000'003 + salt;
  hash *= 0x9e3779b97f4a7c15;
  hash >>= 40;
  if (type == DType::boolean) return static_cast<double>(hash % 2);
  // Products of eight stay within bfloat16's 8 bits of mantissa as powers of two do.
  if (op == ReduceOp::product) return static_cast<double>(1 + hash % 2) * (type == DType::u8 || hash / 2 % 4 ? 1 : -1);
  // Sums of eight stay within 128 … -128, so that bfloat16 and int8 hold them.
  return static_cast<double>(hash % 16) - (type == DType::u8 ? 0 : 7);
}

double combined(ReduceOp op, DType type, double a, double b) {
  const auto whole_a = static_cast<std::int64_t>(a);
  const auto whole_b = static_cast<std::int64_t>(b);
  const bool boolean = type == DType::boolean;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      if (boolean) return std::max(a, b);
      return is_floating(type) ? a + b : wrapped(type, whole_a + whole_b);
    case ReduceOp::product:
      return is_floating(type) ? a * b : wrapped(type, whole_a * whole_b);
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::bit_and:
      return wrapped(type, whole_a & whole_b);
    case ReduceOp::bit_or:
      return wrapped(type, whole_a | whole_b);
    case ReduceOp::bit_xor:
      return wrapped(type, whole_a ^ whole_b);
  }
  return 0;
}

}  // namespace

double average_of(DType type, double sum, Rank world) {
  if (is_floating(type)) return sum / world;
  const std::int64_t truncated = static_cast<std::int64_t>(sum) / world;
  return static_cast<double>(truncated);
}

Values values_of(DType type, ReduceOp op, Rank rank, std::size_t begin, std::size_t count, std::size_t salt) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value_of(type, op, rank, begin + i, salt);
  return values;
}

void combine(ReduceOp op, DType type, Values& values, const Values& others) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = combined(op, type, values[i], others[i]);
}

std::vector<std::byte> encode(DType type, std::span<const double> values) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) encode_one(type, values[i], bytes.data() + i * size_of(type));
  return bytes;
}

Values decode(DType type, ConstBytes bytes) {
  Values values(bytes.size() / size_of(type));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = decode_one(type, bytes.data() + i * size_of(type));
  return values;
}

double tolerance_of(DType type) {
  switch (type) {
    case DType::f64:
      return 0x1p-51;
    case DType::f32:
      return 0x1p-22;
    case DType::f16:
      return 0x1p-10;
    case DType::bf16:
      return 0x1p-7;
    default:
      return 0;
  }
}

}  // namespace ranvier::conformance
