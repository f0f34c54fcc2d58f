#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "codec/gradients.h"
#include "kernel/fenced_memory.h"
#include "kernel/instruction_sets.h"
#include "ranvier/coding.h"
#include "ranvier/error.h"
#include "ranvier/kernel.h"
#include "support/sanitized.h"

namespace ranvier {
namespace {

using Code = std::vector<std::byte>;
using Raw = std::vector<std::byte>;  // values, bit by bit
constexpr DType types[] = {DType::f32, DType::bf16};

Code encoded(const Raw& values, DType type) {
  const std::size_t count = values.size() / size_of(type);
  const std::size_t room = max_lossless_bytes(count, type);
  testing::FencedMemory from(values.size()), to(room);
  const auto input = from.take(values.size(), 0), out = to.take(room, 0);
  std::ranges::copy(values, input.begin());
  const std::size_t length = encode_lossless({input.data(), count, type}, out);
  EXPECT_TRUE(to.intact());
  return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(length)};
}

Raw decoded(const Code& code, std::size_t count, DType type) {
  testing::FencedMemory from(code.size()), to(count * size_of(type));
  const auto input = from.take(code.size(), 0), out = to.take(count * size_of(type), 0);
  std::ranges::copy(code, input.begin());
  decode_lossless(input, {out.data(), count, type});
  EXPECT_TRUE(to.intact());
  return {out.begin(), out.end()};
}

Raw as_bytes(const std::vector<float>& values, DType type) {
  Raw raw(values.size() * size_of(type));
  if (type == DType::f32)
    std::ranges::copy(std::as_bytes(std::span(values)), raw.begin());
  else
    kernel::to_bf16(values.data(), raw.data(), values.size());
  return raw;
}

enum class Kind { any_bits, normal, half_zeros, all_zeros, special };
constexpr Kind kinds[] = {Kind::any_bits, Kind::normal, Kind::half_zeros, Kind::all_zeros, Kind::special};

Raw drawn(Kind kind, std::size_t count, DType type, unsigned seed) {
  std::mt19937 random(seed);
  if (kind == Kind::any_bits) {
    Raw raw(count * size_of(type));
    for (std::byte& byte : raw) byte = static_cast<std::byte>(random());
    return raw;
  }
  constexpr float special[] = {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 0x1p-149F, -0x1p-140F, 3.4028235e38F, 1.0F};
  std::normal_distribution<float> normal(0, 1e-3F);
  std::vector<float> values(count);
  for (float& value : values) {
    if (kind == Kind::special)
      value = special[random() % std::size(special)];
    else if (kind == Kind::normal || (kind == Kind::half_zeros && random() % 2))
      value = normal(random);
  }
  return as_bytes(values, type);
}

TEST(Lossless, ReturnsEveryBitAtEveryLength) {
  const std::size_t step = support::sanitized ? 41 : 13;
  for (const DType type : types)
    for (const Kind kind : kinds) {
      const auto expect_returned = [&](std::size_t count) {
        const Raw values = drawn(kind, count, type, static_cast<unsigned>(count));
        const Code code = encoded(values, type);
        ASSERT_LE(code.size(), max_lossless_bytes(count, type));
        ASSERT_EQ(decoded(code, count, type), values) << name_of(type) << ' ' << count << " of kind " << int(kind);
      };
      for (std::size_t count = 0; count <= 70; ++count) expect_returned(count);
      for (std::size_t count = 71; count <= 4097; count += step) expect_returned(count);
      for (const std::size_t count : {131071, 131072, 131073, 200000}) expect_returned(count);
    }
}

class LosslessOn : public testing::EachInstructionSet {};
RANVIER_FOR_EACH_INSTRUCTION_SET(LosslessOn);

TEST_P(LosslessOn, ReturnsEveryBit) {
  for (const DType type : types)
    for (const Kind kind : kinds)
      for (const std::size_t count : {1, 15, 63, 64, 1001, 140000}) {
        const Raw values = drawn(kind, count, type, 5);
        EXPECT_EQ(decoded(encoded(values, type), count, type), values) << name_of(type) << ' ' << count;
      }
}

TEST(Lossless, KeepsTheBitsOfNanInfinityMinusZeroAndDenormals) {
  const std::vector<std::uint32_t> bits{0x7FC00000, 0xFFC00001, 0x7F800001, 0x7F800000, 0xFF800000, 0x80000000,
                                        0x00000001, 0x807FFFFF, 0x00000000, 0x7F7FFFFF, 0xFFFFFFFF};
  Raw values(bits.size() * 4);
  std::memcpy(values.data(), bits.data(), values.size());
  EXPECT_EQ(decoded(encoded(values, DType::f32), bits.size(), DType::f32), values);
}

TEST(Lossless, SavesWhatTheExponentsOfGradientsLeave) {
  for (const auto& gradient : testing::recorded_gradients()) {
    ASSERT_FALSE(gradient.values.empty());
    for (const DType type : types) {
      const Raw values = as_bytes(gradient.values, type);
      const double ratio = static_cast<double>(values.size()) / static_cast<double>(encoded(values, type).size());
      EXPECT_GT(ratio, type == DType::f32 ? 1.15 : 1.38) << gradient.model << ' ' << name_of(type);
      RecordProperty(gradient.model + " " + std::string(name_of(type)), std::to_string(ratio));
    }
  }
}

TEST(Lossless, DropsZerosForABitEach) {
  const std::size_t count = 60000;
  const Code code = encoded(drawn(Kind::half_zeros, count, DType::f32, 1), DType::f32);
  const Code dense = encoded(drawn(Kind::normal, count / 2, DType::f32, 1), DType::f32);
  EXPECT_LT(code.size(), dense.size() + dense.size() / 50 + count / 8);
  EXPECT_LT(encoded(drawn(Kind::all_zeros, count, DType::f32, 1), DType::f32).size(), 20U);
}

TEST(Lossless, RefusesOtherTypesAndTooLittleRoom) {
  std::vector<double> doubles(3);
  Code out(1000);
  EXPECT_THROW(encode_lossless(doubles, out), Error);
  std::vector<float> floats(100);
  EXPECT_THROW(encode_lossless(floats, Bytes(out).first(max_lossless_bytes(100, DType::f32) - 1)), Error);
}

bool accepts(const Code& code, std::size_t count, DType type) {
  try {
    decoded(code, count, type);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    return false;
  }
}

// A value more or less at the end may make no difference to a bitmap, as to values that are all the same; so only for
// dense ones.
TEST(Lossless, RefusesCodesOfOtherLengths) {
  for (const DType type : types)
    for (const Kind kind : {Kind::any_bits, Kind::normal, Kind::half_zeros, Kind::special})
      for (const std::size_t count : {50, 1000, 140000}) {
        Code code = encoded(drawn(kind, count, type, 2), type);
        if (kind == Kind::any_bits || kind == Kind::normal) {
          EXPECT_FALSE(accepts(code, count + 1, type)) << count << " of kind " << int(kind);
          EXPECT_FALSE(accepts(code, count - 1, type)) << count << " of kind " << int(kind);
        }
        code.push_back(std::byte{0});
        EXPECT_FALSE(accepts(code, count, type));
        for (int i = 0; i < 2; ++i) code.pop_back();
        EXPECT_FALSE(accepts(code, count, type));
      }
}

TEST(Lossless, SurvivesDamage) {
  std::mt19937 random(3);
  for (const DType type : types)
    for (const Kind kind : {Kind::normal, Kind::half_zeros}) {
      const std::size_t count = 5000;
      const Code whole = encoded(drawn(kind, count, type, 4), type);
      for (int round = 0; round < 1000; ++round) {
        Code code = whole;
        for (auto times = 1 + random() % 3; times > 0; --times) {
          const std::size_t range = random() % 2 ? code.size() : std::min<std::size_t>(code.size(), 60);
          code[random() % range] = static_cast<std::byte>(random());
        }
        if (random() % 4 == 0) code.resize(1 + random() % code.size());
        accepts(code, count, type);
      }
    }
}

}  // namespace
}  // namespace ranvier
