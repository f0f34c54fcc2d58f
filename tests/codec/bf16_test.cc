#include <gmock/gmock.h>

#include <cmath>
#include <random>
#include <vector>

#include "ranvier/codec.h"
#include "ranvier/error.h"
#include "ranvier/kernel.h"

namespace ranvier {
namespace {

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random) * std::ldexp(1.0F, static_cast<int>(random() % 40) - 20);
  return values;
}

std::vector<std::byte> encoded(const Codec& codec, const std::vector<float>& values) {
  std::vector<std::byte> code(codec.max_bytes(values.size()));
  code.resize(codec.encode(values, code));
  return code;
}

std::vector<float> decoded(const Codec& codec, const std::vector<std::byte>& code, std::size_t count) {
  std::vector<float> values(count);
  codec.decode(code, values);
  return values;
}

TEST(Bf16Codec, NeedsTwoBytesAValueAndErrsByAtMostTwoToTheMinusEight) {
  const auto codec = bf16_codec();
  for (const std::size_t count : {0, 1, 2, 31, 4097}) {
    const auto values = random_values(count, 1);
    const auto code = encoded(*codec, values);
    EXPECT_EQ(code.size(), 2 * count);
    const auto back = decoded(*codec, code, count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_LE(std::abs(back[i] - values[i]), std::abs(values[i]) * 0x1p-8F);
  }
}

TEST(Bf16Codec, ChangesNothingTheSecondTime) {
  const auto codec = bf16_codec();
  const auto once = decoded(*codec, encoded(*codec, random_values(1000, 2)), 1000);
  EXPECT_EQ(decoded(*codec, encoded(*codec, once), 1000), once);
}

TEST(Bf16Codec, AddsCodesIntoTheCodeOfTheSum) {
  const auto codec = bf16_codec();
  ASSERT_EQ(codec->summable_as(), DType::bf16);
  constexpr std::size_t count = 999;
  const auto a = encoded(*codec, random_values(count, 3)), b = encoded(*codec, random_values(count, 4));
  std::vector<std::byte> sum(a.size());
  kernel::reduce(ReduceOp::sum, DType::bf16, sum.data(), a.data(), b.data(), count, 0);

  auto expected = decoded(*codec, a, count);
  const auto addend = decoded(*codec, b, count);
  for (std::size_t i = 0; i < count; ++i) expected[i] += addend[i];
  EXPECT_EQ(sum, encoded(*codec, expected));
}

TEST(Bf16Codec, WritesAndReadsCodesAtAnyAlignment) {
  const auto codec = bf16_codec();
  const auto values = random_values(100, 5);
  const auto code = encoded(*codec, values);
  std::vector<std::byte> shifted(201);
  EXPECT_EQ(codec->encode(values, Bytes(shifted).subspan(1)), 200U);
  EXPECT_TRUE(std::equal(code.begin(), code.end(), shifted.begin() + 1));
  std::vector<float> back(100);
  codec->decode(ConstBytes(shifted).subspan(1), back);
  EXPECT_EQ(back, decoded(*codec, code, 100));
}

TEST(Bf16Codec, RefusesACodeOfAnotherLength) {
  const auto codec = bf16_codec();
  std::vector<float> values(8);
  for (const std::size_t bytes : {0, 15, 17, 32}) {
    try {
      codec->decode(std::vector<std::byte>(bytes), values);
      ADD_FAILURE() << bytes << " bytes were accepted for 8 values";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::mismatch);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("8 values"));
    }
  }
}

TEST(Bf16Codec, RefusesToEncodeIntoTooFewBytes) {
  std::vector<float> values(8);
  std::vector<std::byte> out(15);
  EXPECT_THROW(bf16_codec()->encode(values, out), Error);
}

}  // namespace
}  // namespace ranvier
