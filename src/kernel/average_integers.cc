#include "kernel/average_integers.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ranvier::kernel {
namespace {

template <class T>
void average(void* to, const void* a, const void* b, std::size_t count, Rank divisor) {
  using Unsigned = std::make_unsigned_t<T>;
  using Wide = std::common_type_t<T, Rank>;  // a divisor may exceed what 8 or 16 bits hold
  const Wide parts = divisor > 1 ? divisor : 1;
  auto* out = static_cast<std::byte*>(to);
  const auto* left = static_cast<const std::byte*>(a);
  const auto* right = static_cast<const std::byte*>(b);
  for (std::size_t at = 0; at < count * sizeof(T); at += sizeof(T)) {
    Unsigned x, y;
    std::memcpy(&x, left + at, sizeof x);
    std::memcpy(&y, right + at, sizeof y);
    const auto sum = static_cast<T>(static_cast<Unsigned>(x + y));
    const auto result = static_cast<T>(sum / parts);
    std::memcpy(out + at, &result, sizeof result);
  }
}

}  // namespace

ReduceFunction average_integers(DType type) {
  switch (type) {
    case DType::i8:
      return &average<std::int8_t>;
    case DType::u8:
      return &average<std::uint8_t>;
    case DType::i16:
      return &average<std::int16_t>;
    case DType::i32:
      return &average<std::int32_t>;
    case DType::i64:
      return &average<std::int64_t>;
    case DType::f32:
    case DType::f64:
    case DType::f16:
    case DType::bf16:
    case DType::boolean:
      break;
  }
  return nullptr;
}

}  // namespace ranvier::kernel
