// The rule of each quantizer, against the rule written down again, slowly.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "codec/codes.h"
#include "kernel/small_floats.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"

namespace ranvier::testing {
namespace {

Values round_trip(const std::string& spec, const Values& values, std::uint64_t seed = 7) {
  const auto codec = make_codec(spec);
  return decoded(*codec, encoded(*codec, values, seed), values.size());
}

double mean_squared_error(const std::string& spec, const Values& values, int keys) {
  double sum = 0;
  for (int key = 0; key < keys; ++key) {
    const double error = norm(difference(round_trip(spec, values, static_cast<std::uint64_t>(key)), values));
    sum += error * error;
  }
  return sum / keys;
}

TEST(BlockIntegers, ErrByHalfAStepOfTheirOwnBlock) {
  const Values values = values_of(Kind::skewed, 1000);
  for (const auto& [spec, limit] :
       {std::pair("int8:block=64", 127.0), {"int4:block=64", 7.0}, {"int2:block=64", 1.0}}) {
    const Values back = round_trip(spec, values);
    for (std::size_t begin = 0; begin < values.size(); begin += 64) {
      const std::size_t end = std::min(begin + 64, values.size());
      double largest = 0;
      for (std::size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(static_cast<double>(values[i])));
      for (std::size_t i = begin; i < end; ++i)
        EXPECT_LE(std::fabs(back[i] - values[i]), largest / (2 * limit) * (1 + 0x1p-7) + 1e-12) << spec;
    }
  }
}

TEST(BlockIntegers, OneHugeValueSpoilsOnlyItsBlock) {
  Values values = values_of(Kind::normal, 640);
  values[5] = 1e10F;
  const Values back = round_trip("int8:block=64", values);
  for (std::size_t i = 64; i < values.size(); ++i) EXPECT_NEAR(back[i], values[i], 3e-4);
  EXPECT_NEAR(back[5], 1e10F, 1e8F);
}

TEST(BlockIntegers, TakeTheBitsThatTheyPromise) {
  const auto bits = [](const std::string& spec) {
    return 8 * static_cast<double>(encoded(*make_codec(spec), values_of(Kind::normal, 1 << 16)).size()) / (1 << 16);
  };
  EXPECT_NEAR(bits("int8"), 8.25, 1e-3);
  EXPECT_NEAR(bits("int4"), 4.25, 1e-3);
  EXPECT_NEAR(bits("int2:block=4096"), 1.6, 0.01);
  EXPECT_NEAR(bits("qsgd:7"), 4.125, 1e-3);
  EXPECT_NEAR(bits("sign"), 1 + 32.0 / 1024, 1e-3);
  EXPECT_NEAR(bits("eden"), 1 + 32.0 / 1024, 1e-3);
  EXPECT_NEAR(bits("eden:3"), 3 + 32.0 / 1024, 1e-3);
  EXPECT_NEAR(bits("mx"), 8.25, 1e-3);
  EXPECT_NEAR(bits("mx:e2m1"), 4.25, 1e-3);
  EXPECT_NEAR(bits("natural"), 8 + 1.0 / 32, 1e-3);
}

// Alistarh et al., lemma 3.1: the variance in a block of d values is at most min(d / s^2, sqrt(d) / s) times its
// squared norm. Scales are rounded up by 2^-7 at most, and the mean of 50 tries is within a tenth.
TEST(Qsgd, KeepsTheVarianceOfItsPaper) {
  const Values values = values_of(Kind::normal, 128);
  for (const int steps : {1, 4, 16, 64}) {
    const double bound = std::min(128.0 / (steps * steps), std::sqrt(128.0) / steps) * std::pow(norm(values), 2);
    const double error = mean_squared_error("qsgd:" + std::to_string(steps) + ",norm=l2", values, 50);
    EXPECT_LE(error, 1.1 * bound) << steps;
    EXPECT_GT(error, 0) << steps;
  }
}

TEST(Natural, GivesPowersOfTwoWithAnEighthOfTheSquareAsVariance) {
  const Values values = values_of(Kind::normal, 2000);
  for (const float value : round_trip("natural", values)) {
    int exponent = 0;
    if (value != 0) {
      EXPECT_EQ(std::fabs(std::frexp(value, &exponent)), 0.5F);
    }
  }
  EXPECT_LE(mean_squared_error("natural", values, 20), std::pow(norm(values), 2) / 8 * 1.02);
}

TEST(Eden, ErrsAsItsPaperSays) {
  const Values values = values_of(Kind::normal, 16384);
  const double squared = std::pow(norm(values), 2);
  for (const auto& [spec, error] :
       {std::pair("eden:1", 0.571), {"eden:2", 0.133}, {"eden:3", 0.036}, {"eden:4", 0.0096}})
    EXPECT_NEAR(mean_squared_error(spec, values, 5) / squared, error, 0.06 * error) << spec;
}

TEST(Sign, IsTheMeanMagnitude) {
  const Values values{1, -2, 3, -6};
  EXPECT_EQ(round_trip("sign", values), (Values{3, -3, 3, -3}));
}

TEST(TernGrad, ClipsAtTwoAndAHalfDeviations) {
  Values values(1024, 0.01F);
  values[0] = 5;  // the deviation of the block is 0.157
  const Values back = round_trip("terngrad", values);
  EXPECT_NEAR(back[0], 2.5 * 0.1566, 0.01);
}

// A power of two changes an exponent and no digit, so a code of values times one is the code times it.
TEST(Scales, ErrAlikeAtEveryMagnitude) {
  for (const std::string spec :
       {"terngrad", "terngrad:clip=0", "qsgd:7,norm=l2", "int8:norm=l2", "int4", "eden:1", "eden:3", "sign"}) {
    const Values values = values_of(Kind::normal, 3000);
    const double error = norm(difference(round_trip(spec, values), values)) / norm(values);
    for (const int exponent : {-75, -60, -50, -40, -20, 20, 40}) {
      Values scaled = values;
      for (float& value : scaled) value = std::ldexp(value, exponent);
      const Values back = round_trip(spec, scaled);
      EXPECT_GT(norm(back), 0) << spec << " at 2^" << exponent;
      const double scaled_error = norm(difference(back, scaled)) / norm(scaled);
      EXPECT_NEAR(scaled_error, error, 0.02 * error) << spec << " at 2^" << exponent;
    }
  }
}

// Exponents of 0 and beyond 2^100; what is negative or beyond that as f32 or bf16.
TEST(Scales, ThatNoEncoderWritesAreRefused) {
  const auto refuses = [](const std::string& spec, std::initializer_list<std::uint8_t> scale) {
    const auto codec = make_codec(spec);
    Code code = encoded(*codec, values_of(Kind::normal, 64));
    const std::size_t at = spec.starts_with("eden") ? 4 : 0;  // behind the seed
    std::ranges::transform(scale, code.begin() + static_cast<std::ptrdiff_t>(at),
                           [](std::uint8_t each) { return std::byte{each}; });
    Values out(64);
    try {
      codec->decode(code, out);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::mismatch;
    }
    return false;
  };
  for (const std::string spec : {"mx", "mx:e5m2", "mx:e2m1", "natural"}) {
    for (const std::uint8_t wrong : std::initializer_list<std::uint8_t>{0, 228, 255})
      EXPECT_TRUE(refuses(spec, {wrong})) << spec << ": " << int{wrong};
    for (const std::uint8_t right : std::initializer_list<std::uint8_t>{1, 227})
      EXPECT_FALSE(refuses(spec, {right})) << spec << ": " << int{right};
  }
  for (const std::string spec : {"sign", "eden:2"}) {
    EXPECT_TRUE(refuses(spec, {0, 0, 0x80, 0xBF})) << spec;   // -1
    EXPECT_TRUE(refuses(spec, {0, 0, 0xC0, 0x7F})) << spec;   // NaN
    EXPECT_FALSE(refuses(spec, {0, 0, 0x80, 0x3F})) << spec;  // 1
  }
  for (const std::string spec : {"int8", "qsgd"}) {
    EXPECT_TRUE(refuses(spec, {0x80, 0xBF})) << spec;
    EXPECT_FALSE(refuses(spec, {0x80, 0x3F})) << spec;
  }
}

TEST(SmallFloats, GiveEveryValueOfTheFormatBack) {
  for (const auto& [spec, format] : {std::pair("fp8:e4m3", kernel::e4m3), {"fp8:e5m2", kernel::e5m2}}) {
    Values values;
    for (unsigned code = 0; code <= format.largest; ++code) {
      values.push_back(kernel::from_small_float(format, static_cast<std::uint8_t>(code)));
      values.push_back(-values.back());
    }
    EXPECT_EQ(round_trip(spec, values), values) << spec;
  }
  EXPECT_EQ(kernel::from_small_float(kernel::e4m3, 0x7E), 448);
  EXPECT_EQ(kernel::from_small_float(kernel::e5m2, 0x7B), 57344);
  EXPECT_EQ(kernel::from_small_float(kernel::e2m1, 0x7), 6);
  EXPECT_EQ(kernel::from_small_float(kernel::e4m3, 1), 0x1p-9F);
}

TEST(SmallFloats, RoundToTheNearestAndTiesToEven) {
  Values values, expected;
  for (unsigned code = 0; code < kernel::e4m3.largest; ++code) {
    const float low = kernel::from_small_float(kernel::e4m3, static_cast<std::uint8_t>(code));
    const float high = kernel::from_small_float(kernel::e4m3, static_cast<std::uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    for (const auto& [value, rounded] : {std::pair(middle, code % 2 == 0 ? low : high),
                                         {std::nextafter(middle, low), low},
                                         {std::nextafter(middle, high), high}}) {
      values.push_back(value);
      expected.push_back(rounded);
    }
  }
  values.push_back(1e9F);
  expected.push_back(448);
  EXPECT_EQ(round_trip("fp8:e4m3", values), expected);
}

TEST(Casts, SaturateInsteadOfOverflowing) { EXPECT_EQ(round_trip("fp16", {1e6F, -1e6F}), (Values{65504, -65504})); }

TEST(Casts, AddCodesIntoTheCodeOfTheSum) {
  EXPECT_EQ(make_codec("bf16")->summable_as(), DType::bf16);
  EXPECT_EQ(make_codec("fp16")->summable_as(), DType::f16);
  EXPECT_EQ(make_codec("int8")->summable_as(), std::nullopt);
}

}  // namespace
}  // namespace ranvier::testing
