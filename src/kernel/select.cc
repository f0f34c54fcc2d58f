#include "kernel/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/select.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "kernel/compress-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

HWY_INLINE std::uint32_t magnitude_bits(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU; }

std::size_t count_loop(const float* values, std::size_t count, float threshold) {
  const auto least = static_cast<std::int32_t>(magnitude_bits(threshold));
  std::size_t found = 0;
  for (std::size_t begin = 0; begin < count; begin += 4096) {
    std::int32_t here = 0;
    const std::size_t end = std::min(begin + 4096, count);
    for (std::size_t i = begin; i < end; ++i)
      here += static_cast<std::int32_t>(magnitude_bits(values[i])) >= least ? 1 : 0;
    found += static_cast<std::size_t>(here);
  }
  return found;
}

namespace hn = hwy::HWY_NAMESPACE;

// Indices of whole vectors at once, of which those chosen are stored side by side.
std::size_t collect_loop(const float* values, std::size_t count, float threshold, std::uint32_t* indices,
                         std::size_t most) {
  const hn::ScalableTag<std::int32_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto below = hn::Set(d, static_cast<std::int32_t>(magnitude_bits(threshold)) - 1);
  const auto no_sign = hn::Set(d, 0x7FFFFFFF);
  auto* const out = reinterpret_cast<std::int32_t*>(indices);
  std::size_t found = 0, i = 0;
  for (; i + lanes <= count && found < most; i += lanes) {
    const auto bits = hn::BitCast(d, hn::LoadU(hn::ScalableTag<float>(), values + i));
    const auto chosen = hn::Gt(hn::And(bits, no_sign), below);
    if (hn::AllFalse(d, chosen)) continue;
    const auto compressed = compress(d, hn::Iota(d, static_cast<std::int32_t>(i)), chosen);
    const std::size_t taken = std::min(hn::CountTrue(d, chosen), most - found);
    if (most - found >= lanes) {
      hn::StoreU(compressed, d, out + found);  // also behind those taken
    } else {
      HWY_ALIGN std::int32_t last[HWY_LANES(std::int32_t)];
      hn::Store(compressed, d, last);
      std::copy_n(last, taken, out + found);
    }
    found += taken;
  }
  for (; i < count && found < most; ++i)
    if (magnitude_bits(values[i]) >= magnitude_bits(threshold)) indices[found++] = static_cast<std::uint32_t>(i);
  return found;
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(count_loop);
HWY_EXPORT(collect_loop);

std::size_t count_at_least(const float* values, std::size_t count, float threshold) {
  return HWY_DYNAMIC_DISPATCH(count_loop)(values, count, threshold);
}
std::size_t collect_at_least(const float* values, std::size_t count, float threshold, std::uint32_t* indices,
                             std::size_t most) {
  return HWY_DYNAMIC_DISPATCH(collect_loop)(values, count, threshold, indices, most);
}

float kth_magnitude(const float* values, std::size_t count, std::size_t k) {
  // Buckets by the exponent and the first four mantissa bits, then all that is left of one bucket's bits.
  constexpr int shift = 19;
  constexpr std::size_t buckets = std::size_t{1} << (31 - shift);
  constexpr std::size_t ways = 4;  // neighbours often share a bucket: their counters do not wait for each other
  std::vector<std::array<std::uint32_t, ways>> counts(buckets);
  for (std::size_t i = 0; i < count; ++i)
    ++counts[(std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU) >> shift][i % ways];
  std::size_t above = 0, bucket = buckets;
  while (true) {
    const auto& count_here = counts[--bucket];
    const std::size_t here = std::size_t{count_here[0]} + count_here[1] + count_here[2] + count_here[3];
    if (above + here >= k) break;
    above += here;
  }
  std::vector<std::uint32_t> candidates;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(values[i]) & 0x7FFFFFFFU;
    if (bits >> shift == bucket && bits != 0) candidates.push_back(bits);
  }
  if (candidates.size() < k - above) return 0;
  const auto wanted = candidates.begin() + static_cast<std::ptrdiff_t>(k - above - 1);
  std::nth_element(candidates.begin(), wanted, candidates.end(), std::greater<>());
  return std::bit_cast<float>(*wanted);
}

}  // namespace ranvier::kernel
#endif
