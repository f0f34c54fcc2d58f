#include "bench/pattern.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

namespace ranvier::bench {
namespace {

// Half precision, for the few values that occur here: whole numbers below 2048, and what divisions make of them.
std::uint16_t to_half(std::int64_t value) {
  if (value == 0) return 0;
  const auto bits = static_cast<std::uint32_t>(value);
  const int exponent = 31 - std::countl_zero(bits);
  const std::uint32_t fraction = bits - (1U << exponent);
  return static_cast<std::uint16_t>((static_cast<std::uint32_t>(exponent + 15) << 10) | (fraction << (10 - exponent)));
}

double from_half(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25));
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

void encode(DType dtype, std::int64_t value, std::byte* to) {
  switch (dtype) {
    case DType::f64:
      return put(to, static_cast<double>(value));
    case DType::f32:
      return put(to, static_cast<float>(value));
    case DType::f16:
      return put(to, to_half(value));
    case DType::bf16:  // the upper half of an f32; the values below 256 have zeros in the lower one
      return put(to, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
    case DType::i64:
      return put(to, value);
    case DType::i32:
      return put(to, static_cast<std::int32_t>(value));
    case DType::i16:
      return put(to, static_cast<std::int16_t>(value));
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return put(to, static_cast<std::uint8_t>(value));
  }
}

double decode_float(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::f64:
      return get<double>(from);
    case DType::f32:
      return static_cast<double>(get<float>(from));
    case DType::f16:
      return from_half(get<std::uint16_t>(from));
    default:
      return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(get<std::uint16_t>(from)) << 16));
  }
}

double last_place(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-10;
    default:
      return 0x1p-7;
  }
}

// -3, -1, 1 or 3, of each rank whatever the others have: an error of values that resemble each other would be too
// small. The mixing is that of SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014).
std::int64_t centred_value(Rank rank, std::size_t index, std::uint64_t seed) {
  std::uint64_t mixed = index + (static_cast<std::uint64_t>(rank) << 16) + (seed << 40);
  mixed = (mixed + 1) * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return 2 * static_cast<std::int64_t>(mixed >> 62) - 3;
}

// The first period of elements whose values `value(i)` gives, or fewer where there are no more than `count`.
template <class Value>
std::vector<std::byte> tile(DType dtype, std::size_t count, Value value) {
  std::vector<std::byte> bytes(std::min(count, Pattern::period) * size_of(dtype));
  for (std::size_t i = 0; i * size_of(dtype) < bytes.size(); ++i)
    encode(dtype, value(i), bytes.data() + i * size_of(dtype));
  return bytes;
}

// Elements of `found` that differ from the tile, laid end to end.
std::uint64_t count_differences(const std::vector<std::byte>& expected, std::size_t size, std::size_t bytes,
                                const void* found) {
  const auto* at = static_cast<const std::byte*>(found);
  std::uint64_t wrong = 0;
  for (std::size_t done = 0; done < bytes; done += expected.size(), at += expected.size()) {
    const std::size_t run = std::min(bytes - done, expected.size());
    if (std::memcmp(at, expected.data(), run) == 0) continue;
    for (std::size_t i = 0; i < run; i += size) wrong += std::memcmp(at + i, expected.data() + i, size) != 0 ? 1 : 0;
  }
  return wrong;
}

}  // namespace

Pattern::Pattern(const Job& job, Rank world)
    : collective_(job.collective), dtype_(job.dtype), op_(job.op), fill_(job.fill), seed_(job.seed), world_(world) {}

std::int64_t Pattern::value(Rank rank, std::size_t index) const {
  if (fill_ == Fill::alike) rank = 0;
  if (fill_ == Fill::zeros || fill_ == Fill::ones) return fill_ == Fill::zeros ? 0 : 1;
  if (fill_ == Fill::centred) return centred_value(rank, index % period, seed_);
  const std::uint32_t mixed =
      (static_cast<std::uint32_t>(index % period) * 2654435761U + static_cast<std::uint32_t>(rank) * 2246822519U +
       static_cast<std::uint32_t>(seed_) * 3266489917U);
  const auto random = static_cast<std::int64_t>(mixed >> 16);
  // Few enough ranks give something other than the neutral element that i8 and bf16 hold the result: at most 32 x 3
  // for a sum, 2^6 for a product.
  const auto gives = [&](Rank most) {
    const Rank stride = (world_ + most - 1) / most;
    return (static_cast<std::size_t>(rank) + index % period) % static_cast<std::size_t>(stride) == 0;
  };
  if (dtype_ == DType::boolean) return random & 1;
  if (!reduces(collective_)) return random & 127;
  switch (op_) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return gives(32) ? random & 3 : 0;
    case ReduceOp::product:
      return gives(6) ? 1 + (random & 1) : 1;
    default:
      return random & 127;
  }
}

std::int64_t Pattern::reduced(std::size_t index) const {
  std::int64_t result = value(0, index);
  for (Rank rank = 1; rank < world_; ++rank) {
    const std::int64_t other = value(rank, index);
    switch (op_) {
      case ReduceOp::sum:
      case ReduceOp::average:
        result += other;
        break;
      case ReduceOp::product:
        result *= other;
        break;
      case ReduceOp::min:
        result = std::min(result, other);
        break;
      case ReduceOp::max:
        result = std::max(result, other);
        break;
      case ReduceOp::bit_and:
        result &= other;
        break;
      case ReduceOp::bit_or:
        result |= other;
        break;
      case ReduceOp::bit_xor:
        result ^= other;
        break;
    }
  }
  if (dtype_ == DType::boolean) return result != 0 ? 1 : 0;
  return op_ == ReduceOp::average && !is_floating(dtype_) ? result / world_ : result;
}

void Pattern::fill(Rank rank, std::size_t first, std::size_t count, void* to) const {
  const auto values = tile(dtype_, count, [&](std::size_t i) { return value(rank, first + i); });
  const std::size_t bytes = count * size_of(dtype_);
  for (std::size_t done = 0; done < bytes; done += values.size())
    std::memcpy(static_cast<std::byte*>(to) + done, values.data(), std::min(bytes - done, values.size()));
}

std::uint64_t Pattern::count_wrong(Rank rank, std::size_t first, std::size_t count, const void* found) const {
  const auto expected = tile(dtype_, count, [&](std::size_t i) { return value(rank, first + i); });
  return count_differences(expected, size_of(dtype_), count * size_of(dtype_), found);
}

std::uint64_t Pattern::count_wrong_reduced(std::size_t first, std::size_t count, const void* found) const {
  const std::size_t size = size_of(dtype_);
  if (fill_ == Fill::centred) return count_no_numbers(count, found);
  // Zeros are right with either sign.
  const bool by_value =
      fill_ == Fill::alike || (is_floating(dtype_) && (op_ == ReduceOp::average || fill_ == Fill::zeros));
  if (!by_value) {
    const auto expected = tile(dtype_, count, [&](std::size_t i) { return reduced(first + i); });
    return count_differences(expected, size, count * size, found);
  }
  const auto* at = static_cast<const std::byte*>(found);
  const Rank divisor = op_ == ReduceOp::average ? world_ : 1;
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double exact = static_cast<double>(reduced(first + i)) / divisor;
    // What tolerates loss is rotated forth and back, which rounds by the size of the values around.
    const double allowed = (fill_ == Fill::alike ? 64.0 * world_ / divisor : exact) * last_place(dtype_);
    // "not within" rather than "outside": NaN is wrong
    wrong += !(std::abs(decode_float(dtype_, at + i * size) - exact) <= allowed) ? 1 : 0;
  }
  return wrong;
}

std::uint64_t Pattern::count_no_numbers(std::size_t count, const void* found) const {
  const auto* at = static_cast<const std::byte*>(found);
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i)
    wrong += std::isfinite(decode_float(dtype_, at + i * size_of(dtype_))) ? 0 : 1;
  return wrong;
}

double Pattern::relative_error(std::size_t first, std::size_t count, const void* found) const {
  const auto* at = static_cast<const std::byte*>(found);
  const Rank divisor = op_ == ReduceOp::average ? world_ : 1;
  double off = 0, all = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double exact = static_cast<double>(reduced(first + i)) / divisor;
    const double difference = decode_float(dtype_, at + i * size_of(dtype_)) - exact;
    if (!std::isfinite(difference)) continue;
    off += difference * difference;
    all += exact * exact;
  }
  return all > 0 ? std::sqrt(off / all) : 0;
}

namespace {

// From the neighbour in each direction its part for the opposite one. Beyond an open border nothing may have moved.
std::uint64_t count_wrong_of_neighbors(const Pattern& pattern, const Job& job, Rank rank, Rank world,
                                       const std::byte* output) {
  const CartesianGrid grid = grid_of(job, world);
  const auto directions = static_cast<std::uint32_t>(2 * grid.dims.size());
  const std::size_t part = job.count / directions;
  const std::size_t part_bytes = part * size_of(job.dtype);
  std::uint64_t wrong = 0;
  for (std::uint32_t direction = 0; direction < directions; ++direction, output += part_bytes) {
    const Rank from = neighbor(grid, rank, direction);
    if (from != no_neighbor)
      wrong += pattern.count_wrong(from, part * opposite(direction), part, output);
    else
      wrong += static_cast<std::uint64_t>(
          std::count_if(output, output + part_bytes, [](std::byte each) { return each != untouched; }));
  }
  return wrong;
}

}  // namespace

double error_of_output(const Job& job, Rank world, const void* output) {
  if (job.fill != Fill::centred || job.collective != Collective::all_reduce) return 0;
  return Pattern(job, world).relative_error(0, job.count, output);
}

void fill_input(const Job& job, Rank rank, Rank world, void* input) {
  Pattern(job, world).fill(rank, 0, shape_of(job, rank, world).input, input);
}

std::uint64_t count_wrong_output(const Job& job, Rank rank, Rank world, const void* output) {
  const Pattern pattern(job, world);
  const std::size_t count = shape_of(job, rank, world).output;
  const std::size_t part = job.count / static_cast<std::size_t>(world);
  const std::size_t mine = part * static_cast<std::size_t>(rank);
  if (count == 0) return 0;
  switch (job.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
      return pattern.count_wrong_reduced(0, count, output);
    case Collective::reduce_scatter:
      return pattern.count_wrong_reduced(mine, count, output);
    case Collective::broadcast:
      return pattern.count_wrong(job.root, 0, count, output);
    case Collective::scatter:
      return pattern.count_wrong(job.root, mine, count, output);
    case Collective::neighbor_exchange:
      return count_wrong_of_neighbors(pattern, job, rank, world, static_cast<const std::byte*>(output));
    case Collective::send:
      return pattern.count_wrong((rank + world - 1) % world, 0, count, output);
    default:
      break;
  }
  // A part from every rank: the only one that it has, or the one meant for this rank.
  const std::size_t first = job.collective == Collective::all_to_all ? mine : 0;
  std::uint64_t wrong = 0;
  for (Rank from = 0; from < world; ++from) {
    const std::size_t at = static_cast<std::size_t>(from) * part * size_of(job.dtype);
    wrong += pattern.count_wrong(from, first, part, static_cast<const std::byte*>(output) + at);
  }
  return wrong;
}

}  // namespace ranvier::bench
