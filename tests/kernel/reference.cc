#include "kernel/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace ranvier::testing {
namespace {

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
void write(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

template <class T>
T reduce_floats(ReduceOp op, T x, T y, Rank divisor) {
  const bool nan = std::isnan(x) || std::isnan(y);
  const bool x_is_less = x < y || (x == y && std::signbit(x));
  switch (op) {
    case ReduceOp::sum:
      return x + y;
    case ReduceOp::average:
      return divisor > 1 ? (x + y) / static_cast<T>(divisor) : x + y;
    case ReduceOp::product:
      return x * y;
    case ReduceOp::min:
      return nan ? std::numeric_limits<T>::quiet_NaN() : x_is_less ? x : y;
    case ReduceOp::max:
      return nan ? std::numeric_limits<T>::quiet_NaN() : x_is_less ? y : x;
    default:
      throw std::logic_error("floats have no bitwise reductions");
  }
}

template <class T>
T reduce_integers(ReduceOp op, T x, T y, Rank divisor) {
  const auto wide_x = static_cast<std::uint64_t>(std::int64_t{x}), wide_y = static_cast<std::uint64_t>(std::int64_t{y});
  const auto sum = static_cast<T>(wide_x + wide_y);
  switch (op) {
    case ReduceOp::sum:
      return sum;
    case ReduceOp::average:
      return divisor > 1 ? static_cast<T>(std::int64_t{sum} / divisor) : sum;
    case ReduceOp::product:
      return static_cast<T>(wide_x * wide_y);
    case ReduceOp::min:
      return std::min(x, y);
    case ReduceOp::max:
      return std::max(x, y);
    case ReduceOp::bit_and:
      return static_cast<T>(wide_x & wide_y);
    case ReduceOp::bit_or:
      return static_cast<T>(wide_x | wide_y);
    case ReduceOp::bit_xor:
      return static_cast<T>(wide_x ^ wide_y);
  }
  throw std::logic_error("no such reduction");
}

bool reduce_booleans(ReduceOp op, bool x, bool y) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bit_or:
      return x || y;
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::bit_and:
      return x && y;
    case ReduceOp::bit_xor:
      return x != y;
    case ReduceOp::average:
      break;
  }
  throw std::logic_error("booleans have no average");
}

template <class T>
bool both_nan(const std::byte* a, const std::byte* b) {
  return std::isnan(read<T>(a)) && std::isnan(read<T>(b));
}

bool both_nan(const std::byte* a, const std::byte* b, Format16 format) {
  return std::isnan(widen(read<std::uint16_t>(a), format)) && std::isnan(widen(read<std::uint16_t>(b), format));
}

}  // namespace

// Counts steps of the format's last place in a double, which holds every f32 and that count exactly.
std::uint16_t narrow(float value, Format16 format) {
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const int infinity = 0x7FFF >> format.mantissa_bits << format.mantissa_bits;
  const double magnitude = std::abs(double{value});
  if (std::isnan(value)) return static_cast<std::uint16_t>(infinity + 1);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign + infinity);
  const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
  const double steps = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const int bits = ((exponent + format.bias - 1) << format.mantissa_bits) + static_cast<int>(steps);
  return static_cast<std::uint16_t>(sign + std::min(bits, infinity));
}

float widen(std::uint16_t bits, Format16 format) {
  const int magnitude = bits & 0x7FFF;
  const int infinity = 0x7FFF >> format.mantissa_bits << format.mantissa_bits;
  const int exponent = magnitude >> format.mantissa_bits;
  const int fraction = magnitude & ((1 << format.mantissa_bits) - 1);
  const int steps = exponent == 0 ? fraction : fraction + (1 << format.mantissa_bits);
  double value = std::ldexp(steps, std::max(exponent, 1) - format.bias - format.mantissa_bits);
  if (magnitude == infinity) value = std::numeric_limits<double>::infinity();
  if (magnitude > infinity) value = std::numeric_limits<double>::quiet_NaN();
  return static_cast<float>(bits & 0x8000 ? -value : value);
}

void reduce_one(ReduceOp op, DType type, std::byte* to, const std::byte* a, const std::byte* b, Rank divisor) {
  const auto floats = [&]<class T>(T) { write(to, reduce_floats(op, read<T>(a), read<T>(b), divisor)); };
  const auto integers = [&]<class T>(T) { write(to, reduce_integers(op, read<T>(a), read<T>(b), divisor)); };
  const auto halves = [&](Format16 format) {
    const float x = widen(read<std::uint16_t>(a), format), y = widen(read<std::uint16_t>(b), format);
    write(to, narrow(reduce_floats(op, x, y, divisor), format));
  };
  switch (type) {
    case DType::f32:
      return floats(float{});
    case DType::f64:
      return floats(double{});
    case DType::f16:
      return halves(f16_format);
    case DType::bf16:
      return halves(bf16_format);
    case DType::i8:
      return integers(std::int8_t{});
    case DType::i16:
      return integers(std::int16_t{});
    case DType::i32:
      return integers(std::int32_t{});
    case DType::i64:
      return integers(std::int64_t{});
    case DType::u8:
      return integers(std::uint8_t{});
    case DType::boolean:
      return write(to, reduce_booleans(op, read<bool>(a), read<bool>(b)));
  }
}

bool same(DType type, const std::byte* a, const std::byte* b) {
  if (std::memcmp(a, b, size_of(type)) == 0) return true;
  if (type == DType::f32) return both_nan<float>(a, b);
  if (type == DType::f64) return both_nan<double>(a, b);
  if (type == DType::f16) return both_nan(a, b, f16_format);
  if (type == DType::bf16) return both_nan(a, b, bf16_format);
  return false;
}

}  // namespace ranvier::testing
