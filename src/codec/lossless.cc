// Floats without loss: the exponents of gradients crowd around a few values and carry some 3 bits of their 8, signs and
// mantissas next to nothing less than theirs. So bytes go into planes, the exponent into one of its own, and rANS codes
// the planes that it shortens. Hershcovitch et al., "ZipNN: Lossless Compression for AI Models", arXiv:2411.05239.
// Where more than one value in eight is zero (+0, all bits; half of the gradients behind a ReLU are), a bitmap of the
// others comes first and the zeros vanish from the planes.
//
// Code: chunks of 128 Ki values, each a byte (1 if there is a bitmap), the bitmap if there is one, the planes from the
// exponent down; each of these a length in three bytes and that many bytes of rANS code. All of a chunk stays in the
// cache; working memory is 9 bytes a value of one chunk (f32; 5 for bf16).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "codec/code_errors.h"
#include "kernel/planes.h"
#include "ranvier/coding.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

constexpr std::size_t chunk_values = 131072;
constexpr std::size_t plane_length_bytes = 3;
// What a chunk takes beyond its values: its first byte, five sections of a length and a rANS block's 4 bytes.
constexpr std::size_t chunk_overhead = 1 + 5 * (plane_length_bytes + 4);

// ---- Zeros

// Appends the values that are not zero to `kept` and returns how many; bit i of `bitmap` says whether value i was kept.
template <class Value>
std::size_t drop_zeros(const std::byte* values, std::size_t count, std::byte* kept, std::uint8_t* bitmap) {
  std::size_t used = 0;
  for (std::size_t first = 0; first < count; first += 8) {
    unsigned bits = 0;
    for (std::size_t i = first; i < std::min(first + 8, count); ++i) {
      Value value;
      std::memcpy(&value, values + i * sizeof value, sizeof value);
      std::memcpy(kept + used * sizeof value, &value, sizeof value);
      const bool keep = value != 0;
      bits |= static_cast<unsigned>(keep) << (i - first);
      used += keep;
    }
    bitmap[first / 8] = static_cast<std::uint8_t>(bits);
  }
  return used;
}

// `kept` has a value more than the bitmap has ones, of any content: it is read, and not used, for zeros at the end.
template <class Value>
void restore_zeros(const std::byte* kept, const std::uint8_t* bitmap, std::size_t count, std::byte* values) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned keep = bitmap[i / 8] >> i % 8 & 1;
    Value value;
    std::memcpy(&value, kept + used * sizeof value, sizeof value);
    value = static_cast<Value>(value & -keep);  // which is random: not a branch
    std::memcpy(values + i * sizeof value, &value, sizeof value);
    used += keep;
  }
}

template <class Value>
std::size_t count_zeros(const std::byte* values, std::size_t count) {
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Value value;
    std::memcpy(&value, values + i * sizeof value, sizeof value);
    zeros += value == 0;
  }
  return zeros;
}

// ---- Both types, by the unsigned integer of their size

void split(const std::byte* values, std::size_t count, std::uint8_t* const (&planes)[4]) {
  kernel::split_planes_32(values, count, planes);
}
void split(const std::byte* values, std::size_t count, std::uint8_t* const (&planes)[2]) {
  kernel::split_planes_16(values, count, planes);
}
void join(const std::uint8_t* const (&planes)[4], std::size_t count, std::byte* values) {
  kernel::join_planes_32(planes, count, values);
}
void join(const std::uint8_t* const (&planes)[2], std::size_t count, std::byte* values) {
  kernel::join_planes_16(planes, count, values);
}

template <class Value>
class Chunks {
 public:
  explicit Chunks(std::size_t count) : most_(std::min(count, chunk_values)) {
    memory_.resize((2 * sizeof(Value) + 1) * most_ + 2 * sizeof(Value));
    std::uint8_t* at = memory_.data();
    for (std::uint8_t*& plane : planes_) {
      plane = at;
      at += most_;
    }
    bitmap_ = at;
    kept_ = reinterpret_cast<std::byte*>(at + most_);
  }

  std::size_t encode(const std::byte* values, std::size_t count, Bytes out) {
    const bool sparse = count_zeros<Value>(values, count) > count / 8;
    out[0] = static_cast<std::byte>(sparse);
    std::size_t used = 1;
    if (sparse) {
      const std::size_t kept = drop_zeros<Value>(values, count, kept_, bitmap_);
      used += put({bitmap_, (count + 7) / 8}, out.subspan(used));
      values = kept_;
      count = kept;
    }
    split(values, count, planes_);
    for (const std::uint8_t* plane : planes_) used += put({plane, count}, out.subspan(used));
    return used;
  }

  // Moves `code` on; throws what the coder throws, and returns false for anything else that is not a chunk.
  bool decode(ConstBytes& code, std::byte* values, std::size_t count) {
    if (code.empty() || code[0] > std::byte{1}) return false;
    const bool sparse = code[0] == std::byte{1};
    code = code.subspan(1);
    std::size_t kept = count;
    if (sparse) {
      const std::size_t bitmap_bytes = (count + 7) / 8;
      if (!take(code, {bitmap_, bitmap_bytes})) return false;
      if (count % 8 != 0 && bitmap_[bitmap_bytes - 1] >> count % 8 != 0) return false;
      kept = 0;
      for (std::size_t i = 0; i < bitmap_bytes; ++i) kept += static_cast<std::size_t>(std::popcount(bitmap_[i]));
    }
    for (std::uint8_t* plane : planes_)
      if (!take(code, {plane, kept})) return false;
    join(const_planes(), kept, sparse ? kept_ : values);
    if (sparse) restore_zeros<Value>(kept_, bitmap_, count, values);
    return true;
  }

 private:
  using ConstPlanes = const std::uint8_t* const (&)[sizeof(Value)];
  ConstPlanes const_planes() const { return reinterpret_cast<ConstPlanes>(planes_); }

  std::size_t put(std::span<const std::uint8_t> plane, Bytes out) const {
    const std::size_t length = coder_->encode(plane, out.subspan(plane_length_bytes));
    std::memcpy(out.data(), &length, plane_length_bytes);
    return plane_length_bytes + length;
  }

  bool take(ConstBytes& code, std::span<std::uint8_t> plane) const {
    std::size_t length = 0;
    if (code.size() < plane_length_bytes) return false;
    std::memcpy(&length, code.data(), plane_length_bytes);
    code = code.subspan(plane_length_bytes);
    if (length > code.size()) return false;
    coder_->decode(code.first(length), plane);
    code = code.subspan(length);
    return true;
  }

  std::size_t most_;
  std::unique_ptr<Coder> coder_ = rans();
  std::vector<std::uint8_t> memory_;
  std::uint8_t* planes_[sizeof(Value)];
  std::uint8_t* bitmap_;
  std::byte* kept_;
};

template <class Value>
std::size_t encode_all(ConstTypedSpan values, Bytes out) {
  Chunks<Value> chunks(values.count);
  const auto* from = static_cast<const std::byte*>(values.data);
  std::size_t used = 0;
  for (std::size_t first = 0; first < values.count; first += chunk_values)
    used +=
        chunks.encode(from + first * sizeof(Value), std::min(chunk_values, values.count - first), out.subspan(used));
  return used;
}

template <class Value>
bool decode_all(ConstBytes code, TypedSpan values) {
  Chunks<Value> chunks(values.count);
  auto* to = static_cast<std::byte*>(values.data);
  for (std::size_t first = 0; first < values.count; first += chunk_values)
    if (!chunks.decode(code, to + first * sizeof(Value), std::min(chunk_values, values.count - first))) return false;
  return code.empty();
}

void require_float(DType type) {
  if (type != DType::f32 && type != DType::bf16)
    throw Error(
        ErrorKind::usage,
        fmt::format("the lossless code is for f32 and bf16, not for {}; send those as they are", name_of(type)));
}

}  // namespace

std::size_t max_lossless_bytes(std::size_t count, DType type) {
  require_float(type);
  return count * size_of(type) + (count + chunk_values - 1) / chunk_values * chunk_overhead;
}

std::size_t encode_lossless(ConstTypedSpan values, Bytes out) {
  require_room("lossless", values.count, "values", max_lossless_bytes(values.count, values.dtype), out.size());
  return values.dtype == DType::f32 ? encode_all<std::uint32_t>(values, out) : encode_all<std::uint16_t>(values, out);
}

void decode_lossless(ConstBytes code, TypedSpan values) {
  require_float(values.dtype);
  const bool decoded =
      values.dtype == DType::f32 ? decode_all<std::uint32_t>(code, values) : decode_all<std::uint16_t>(code, values);
  if (!decoded) not_a_code("lossless", code.size(), values.count, "values");
}

}  // namespace ranvier
