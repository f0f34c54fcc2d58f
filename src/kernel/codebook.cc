#include "kernel/codebook.h"

#include <bit>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/codebook.cc"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ranvier::kernel::HWY_NAMESPACE {

// The index is the number of midpoints between entries that lie below the magnitude: no search, no table.
template <std::size_t half>
void to_codebook_of(const Codebook& book, const float* HWY_RESTRICT values, float factor, std::size_t count,
                    std::uint8_t* HWY_RESTRICT symbols) {
  float middles[half] = {};
  for (std::size_t entry = 0; entry + 1 < half; ++entry)
    middles[entry] = (book.values[entry] + book.values[entry + 1]) / 2;
  for (std::size_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(values[i]) * factor;
    std::uint32_t index = 0;
    for (std::size_t entry = 0; entry + 1 < half; ++entry) index += magnitude > middles[entry] ? 1U : 0U;
    symbols[i] = static_cast<std::uint8_t>(2 * index + (std::bit_cast<std::uint32_t>(values[i]) >> 31));
  }
}

void to_codebook_loop(const Codebook& book, const float* values, float factor, std::size_t count,
                      std::uint8_t* symbols) {
  switch (book.half) {
    case 1:
      return to_codebook_of<1>(book, values, factor, count, symbols);
    case 2:
      return to_codebook_of<2>(book, values, factor, count, symbols);
    case 4:
      return to_codebook_of<4>(book, values, factor, count, symbols);
    default:
      return to_codebook_of<8>(book, values, factor, count, symbols);
  }
}

namespace hn = hwy::HWY_NAMESPACE;

// All entries fit in a register of eight floats and more, where symbols find theirs, and the lowest bit the sign.
void from_codebook_loop(const Codebook& book, const std::uint8_t* HWY_RESTRICT symbols, float factor, std::size_t count,
                        float* HWY_RESTRICT values) {
  const hn::CappedTag<float, 16> d;
  const hn::RebindToUnsigned<decltype(d)> bits;
  const hn::Rebind<std::uint8_t, decltype(d)> bytes;
  const auto half = static_cast<std::uint32_t>(book.half);
  HWY_ALIGN float entries[16];
  for (std::size_t entry = 0; entry < 16; ++entry) entries[entry] = book.values[entry % book.half] * factor;
  std::size_t i = 0;
  if (const std::size_t lanes = hn::Lanes(d); lanes >= book.half) {
    const auto table = hn::Load(d, entries);
    for (; i + lanes <= count; i += lanes) {
      const auto symbol = hn::PromoteTo(bits, hn::LoadU(bytes, symbols + i));
      const auto index = hn::And(hn::ShiftRight<1>(symbol), hn::Set(bits, half - 1));
      const auto value = hn::TableLookupLanes(table, hn::IndicesFromVec(d, index));
      hn::StoreU(hn::Xor(value, hn::BitCast(d, hn::ShiftLeft<31>(symbol))), d, values + i);
    }
  }
  for (; i < count; ++i) {
    const auto sign = static_cast<std::uint32_t>(symbols[i]) << 31;
    values[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(entries[symbols[i] / 2 & (half - 1)]) ^ sign);
  }
}

}  // namespace ranvier::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ranvier::kernel {

HWY_EXPORT(to_codebook_loop);
HWY_EXPORT(from_codebook_loop);

void to_codebook(const Codebook& book, const float* values, float factor, std::size_t count, std::uint8_t* symbols) {
  HWY_DYNAMIC_DISPATCH(to_codebook_loop)(book, values, factor, count, symbols);
}
void from_codebook(const Codebook& book, const std::uint8_t* symbols, float factor, std::size_t count, float* values) {
  HWY_DYNAMIC_DISPATCH(from_codebook_loop)(book, symbols, factor, count, values);
}

}  // namespace ranvier::kernel
#endif
