#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernel/fenced_memory.h"
#include "kernel/instruction_sets.h"
#include "kernel/reference.h"
#include "ranvier/kernel.h"

namespace ranvier::testing {
namespace {

struct Coding {
  const char* name;
  Format16 format;
  void (*narrow)(const float*, void*, std::size_t);
  void (*widen)(const void*, float*, std::size_t);
};
constexpr Coding codings[] = {{"bf16", bf16_format, kernel::to_bf16, kernel::from_bf16},
                              {"f16", f16_format, kernel::to_f16, kernel::from_f16}};

std::vector<std::uint16_t> all_16_bits() {
  std::vector<std::uint16_t> all(0x10000);
  for (std::size_t bits = 0; bits < all.size(); ++bits) all[bits] = static_cast<std::uint16_t>(bits);
  return all;
}

// Every value of the format, every midpoint between neighbours and what lies just beside both.
std::vector<float> hard_to_round(Format16 format) {
  std::vector<float> values;
  const auto with_neighbours = [&](float value) {
    for (const float direction : {-INFINITY, INFINITY}) values.push_back(std::nextafter(value, direction));
    values.push_back(value);
  };
  for (const std::uint16_t bits : all_16_bits()) {
    const float value = widen(bits, format), next = widen(static_cast<std::uint16_t>(bits + 1), format);
    with_neighbours(value);
    if (std::isfinite(value) && std::isfinite(next))
      with_neighbours(static_cast<float>((double{value} + double{next}) / 2));
  }
  for (const float value :
       {65519.99F, 65520.0F, 65536.0F, 131071.0F, 0x1p-25F, 0x1.000002p-25F, 0x1p-149F, 3.4028235e38F})
    for (const float signed_value : {value, -value}) with_neighbours(signed_value);
  return values;
}

bool is_nan(std::uint16_t bits, Format16 format) { return std::isnan(widen(bits, format)); }

class Conversion : public EachInstructionSet {
 protected:
  static void expect_narrowed(const Coding& coding, const std::vector<float>& values) {
    std::vector<std::uint16_t> codes(values.size());
    coding.narrow(values.data(), codes.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i]))
        ASSERT_TRUE(is_nan(codes[i], coding.format)) << coding.name;
      else
        ASSERT_EQ(codes[i], narrow(values[i], coding.format)) << coding.name << " of " << values[i];
    }
  }
};

TEST_P(Conversion, OfEveryValueWidensExactly) {
  const auto codes = all_16_bits();
  std::vector<float> values(codes.size());
  for (const Coding& coding : codings) {
    coding.widen(codes.data(), values.data(), codes.size());
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const float expected = widen(codes[i], coding.format);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(values[i])) << coding.name << ' ' << i;
      } else {
        ASSERT_EQ(values[i], expected) << coding.name << ' ' << i;
        ASSERT_EQ(std::signbit(values[i]), std::signbit(expected)) << coding.name << ' ' << i;
      }
    }
  }
}

TEST_P(Conversion, RoundsToNearestEven) {
  for (const Coding& coding : codings) expect_narrowed(coding, hard_to_round(coding.format));
}

TEST_P(Conversion, OfAnyBitsAgreesWithTheScalarOne) {
  std::mt19937 random(7);
  std::vector<float> values(1 << 18);
  for (float& value : values) {
    const auto bits = static_cast<std::uint32_t>(random());
    std::memcpy(&value, &bits, sizeof value);
  }
  for (const Coding& coding : codings) expect_narrowed(coding, values);
}

TEST_P(Conversion, KeepsANanWhoseLastBitsAreRoundedAway) {
  const std::uint32_t bits[] = {0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFFFFFFF};
  float values[4];
  std::memcpy(values, bits, sizeof bits);
  for (const Coding& coding : codings) {
    std::uint16_t codes[4] = {};
    coding.narrow(values, codes, 4);
    for (const std::uint16_t code : codes) EXPECT_TRUE(is_nan(code, coding.format)) << coding.name;
  }
}

TEST_P(Conversion, StaysInsideItsMemoryAtEveryCountAndAlignment) {
  FencedMemory floats(1040), halves(520);
  for (const Coding& coding : codings)
    for (std::size_t count = 0; count <= 257; ++count) {
      const auto values = floats.take(4 * count, count % 2 * 8);  // the f32 side is aligned
      const auto codes = halves.take(2 * count, count % 3);
      for (std::size_t i = 0; i < count; ++i) {
        const auto value = static_cast<float>(i) / 3;
        std::memcpy(&values[4 * i], &value, sizeof value);
      }
      coding.narrow(reinterpret_cast<const float*>(values.data()), codes.data(), count);
      coding.widen(codes.data(), reinterpret_cast<float*>(values.data()), count);
      ASSERT_TRUE(floats.intact() && halves.intact()) << coding.name << ' ' << count;
      for (std::size_t i = 0; i < count; ++i) {
        const float expected = widen(narrow(static_cast<float>(i) / 3, coding.format), coding.format);
        float value = 0;
        std::memcpy(&value, &values[4 * i], sizeof value);
        ASSERT_EQ(value, expected) << coding.name << ", element " << i << " of " << count;
      }
    }
}

RANVIER_FOR_EACH_INSTRUCTION_SET(Conversion);

}  // namespace
}  // namespace ranvier::testing
