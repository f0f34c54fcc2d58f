// What every codec promises, tried on every stage and on combinations of them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "codec/codes.h"
#include "ranvier/codec.h"
#include "ranvier/error.h"

namespace ranvier::testing {
namespace {

constexpr std::size_t lengths[] = {0, 1, 2, 3, 5, 7, 8, 31, 64, 65, 127, 1000, 1025, 4095, 4096, 4097, 12289};

// The spec, and the most that ||values - decoded|| may be of ||values||: over values of any kind, and over normal ones.
struct Case {
  std::string spec;
  double any_error;
  double normal_error;
};
// Most bounds follow from the rules in docs/codecs.md. An unbiased code of one or two bits may err by more than the
// value.
constexpr double unbounded = 1e9;
const Case cases[] = {
    {"fp32", 0, 0},
    {"bf16", 0x1p-8, 0x1p-8},
    {"fp16", 1, 0x1p-11},
    {"fp8", 1, 0x1p-3},
    {"fp8:e4m3", 1, 0.1},
    {"mx", 0.13, 0.04},
    {"mx:e5m2", 0.13, 0.08},
    {"mx:e2m1", 0.26, 0.15},
    {"natural", 1, 0.37},
    {"int8", 0.036, 0.01},
    {"int8:rounding=stochastic,block=32", 0.06, 0.02},
    {"int4", 0.6, 0.15},
    {"int4:norm=l2", 1, 0.5},
    {"int2", 1, 0.9},
    {"hadamard:32+int4", 0.6, 0.15},
    {"hadamard+hadamard:8+int8", 0.1, 0.02},
    {"qsgd", unbounded, 0.35},
    {"qsgd:7,rounding=nearest", 0.6, 0.17},
    {"qsgd:127,norm=l2", unbounded, 0.2},
    {"terngrad", unbounded, 2},
    {"terngrad:clip=0", unbounded, 3},
    {"sign", 1, 0.65},
    {"eden", unbounded, 1.2},
    {"eden:2", unbounded, 0.6},
    {"eden:3", unbounded, 0.3},
    {"eden:4,block=256", unbounded, 0.15},
    {"topk:0.1", 0.96, 0.8},
    {"topk:0.1,select=sampled", 0.96, 0.8},
    {"topk:0.05+int8", 1, 0.9},
    {"topk:1", 0, 0},
    {"sidco:0.1", 1, 0.85},
    {"randk:0.5", 1, 0.8},
    {"threshold:0.005", unbounded, 0.5},
    {"dgc:0.1", 1, 0.85},
    {"dct+topk:0.1", 1, 0.8},
    {"hadamard:1024+topk:0.2+hadamard:8+int8", 1, 0.7},
    {"topk:0.5+dct:16+int8", 0.75, 0.3},
    {"int4+rans", 0.6, 0.15},
    {"hadamard:32+int4+huffman", 0.6, 0.15},
    {"qsgd:7+rans", unbounded, 0.35},
    {"qsgd:3+elias_gamma", unbounded, 0.8},
    {"int2+golomb_rice", 1, 0.9},
    {"int8+range", 0.036, 0.01},
    {"topk:0.05+int4+zstd", 1, 0.95},
    {"lossless", 0, 0},
    {"bf16+lossless", 0x1p-8, 0x1p-8},
    {"delta+topk:0.1+int8", 1, 0.8},
};

class EveryCodec : public ::testing::TestWithParam<Case> {
 protected:
  const std::unique_ptr<Codec> codec = make_codec(GetParam().spec);
};

TEST_P(EveryCodec, ComesBackWithinItsBoundForEveryLengthAndKindOfValues) {
  for (const std::size_t count : lengths)
    for (const Kind kind : all_kinds) {
      const Values values = values_of(kind, count);
      const Code code = encoded(*codec, values);
      ASSERT_LE(code.size(), codec->max_bytes(count));
      ASSERT_EQ(code.empty(), count == 0);
      const Values back = decoded(*codec, code, count);
      for (const float value : back) ASSERT_TRUE(std::isfinite(value));
      if (kind == Kind::zero) {
        ASSERT_EQ(norm(back), 0) << count;
      }
      // What is nearly denormal may become 0.
      if (kind == Kind::denormal || count == 0) continue;
      const double bound = kind == Kind::normal && count >= 1000 ? GetParam().normal_error : GetParam().any_error;
      ASSERT_LE(norm(difference(values, back)), norm(values) * (bound + 1e-6)) << count << " of kind " << int(kind);
    }
}

TEST_P(EveryCodec, GivesTheSameBytesForTheSameKey) {
  const Values values = values_of(Kind::skewed, 5000);
  EXPECT_EQ(encoded(*codec, values, 3), encoded(*codec, values, 3));
}

TEST_P(EveryCodec, AddsWhatItWouldHaveReplaced) {
  const Values values = values_of(Kind::normal, 5000);
  const Code code = encoded(*codec, values);
  Values sum(values.size(), 2);
  codec->decode(code, sum, Combine::add);
  const Values back = decoded(*codec, code, values.size());
  for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], 2 + back[i]);
}

TEST_P(EveryCodec, LeavesBehindExactlyWhatItLost) {
  if (codec->state_parts() != 1) GTEST_SKIP() << "no error feedback by itself";
  for (const std::size_t count : {1, 100, 4097}) {
    const Values values = values_of(Kind::normal, count);
    const Values before = values_of(Kind::normal, count, 2);
    Values residual = before;
    const Code code = encoded(*codec, values, 7, {.residual = residual});
    const Values back = decoded(*codec, code, count);
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_NEAR(back[i] + residual[i], values[i] + before[i], 1e-6 + std::fabs(back[i]) * 1e-6) << i;
  }
}

TEST_P(EveryCodec, HasNoCodeForWhatIsNotFiniteAndKeepsItsStateThen) {
  const Values all{NAN, INFINITY, 1};
  if (!encoded(*codec, all).empty()) {  // casts and what is lossless take them as they are
    const Values back = decoded(*codec, encoded(*codec, all), 3);
    EXPECT_TRUE(std::isnan(back[0]));
    EXPECT_EQ(back[1], INFINITY);
    return;
  }
  for (const float bad : {NAN, INFINITY, -INFINITY, 0x1p51F})
    for (const std::size_t place : {0, 4095, 4096, 8999}) {
      Values values = values_of(Kind::normal, 9000);
      values[place] = bad;
      const Values before = values_of(Kind::normal, 9000, 2);
      Values residual = before;
      EXPECT_TRUE(encoded(*codec, values, 7, {.residual = residual}).empty()) << bad << " at " << place;
      for (std::size_t i = 0; i < residual.size(); ++i) ASSERT_NEAR(residual[i], before[i], 1e-7);
    }
}

TEST_P(EveryCodec, ReadsHostileBytesAsValuesOrRefusesThem) {
  std::mt19937 random(11);
  for (const std::size_t count : {1, 50, 4500}) {
    const Code right = encoded(*codec, values_of(Kind::skewed, count));
    for (int round = 0; round < 60; ++round) {
      Code wrong = right;
      if (round % 3 == 0) wrong.resize(random() % (right.size() + 9));
      for (unsigned flips = 1 + random() % 8; flips > 0 && !wrong.empty(); --flips)
        wrong[random() % wrong.size()] = static_cast<std::byte>(random());
      Values out(count);
      try {
        codec->decode(wrong, out);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::mismatch) << error.what();
      }
    }
    if (GetParam().spec != "threshold:0.005") {
      EXPECT_THROW(decoded(*codec, {}, count), Error);
    }
  }
}

TEST_P(EveryCodec, RefusesTooLittleMemory) {
  const Values values = values_of(Kind::normal, 100);
  Code out(codec->max_bytes(values.size()) - 1);
  EXPECT_THROW(codec->encode(values, {}, out, {}), Error);
}

INSTANTIATE_TEST_SUITE_P(Of, EveryCodec, ::testing::ValuesIn(cases), [](const ::testing::TestParamInfo<Case>& each) {
  std::string name = each.param.spec;
  for (char& letter : name)
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  return name;
});

// Every quantizer with every coder, and behind every sparsifier, as far as they go together.
std::vector<std::string> all_combinations() {
  std::vector<std::string> fronts{""}, quantizers{"", "eden:2+", "eden:4,block=4096+", "qsgd:1+"}, coders{""};
  for (const StageInfo& stage : codec_stages()) {
    const std::string link = fmt::format("{}+", stage.name);
    if (stage.kind == StageKind::sparsify) fronts.insert(fronts.end(), {link, "dct+" + link});
    if (stage.kind == StageKind::quantize) quantizers.push_back(link);
    if (stage.kind == StageKind::code) coders.push_back(link);
  }
  std::vector<std::string> specs;
  for (const auto& front : fronts)
    for (const auto& quantizer : quantizers)
      for (const auto& coder : coders) {
        std::string spec = front + quantizer + coder;
        if (!spec.empty()) spec.pop_back();
        try {
          make_codec(spec);
          specs.push_back(spec);
        } catch (const Error&) {  // they do not
        }
      }
  return specs;
}

TEST(EveryCombination, OfFewerValuesNeedsNoMoreBytes) {
  const auto specs = all_combinations();
  EXPECT_GT(specs.size(), 500U);
  for (const std::string& spec : specs) {
    const auto codec = make_codec(spec);
    std::size_t before = 0;
    for (std::size_t count = 0; count <= 9000; ++count) {
      const std::size_t bytes = codec->max_bytes(count);
      ASSERT_GE(bytes, before) << spec << ", " << count << " values";
      before = bytes;
    }
  }
}

// How many values a sparsifier keeps is seen when they are there: any number up to its most.
TEST(EveryCombination, HasRoomForAnyNumberOfKeptValues) {
  for (const std::string& spec : all_combinations()) {
    if (!spec.starts_with("threshold")) continue;
    const auto codec = make_codec(spec);
    for (const std::size_t count : {8, 1024, 2049, 4784, 8192})
      for (const std::size_t lacking : {std::size_t{0}, std::size_t{1}, std::size_t{2}, count / 2, count - 1, count}) {
        Values values(count);
        for (std::size_t i = lacking; i < count; ++i) values[i] = i % 2 == 0 ? 0.5F : -0.75F;
        Code code;
        ASSERT_NO_THROW(code = encoded(*codec, values)) << spec << ", all but " << lacking << " of " << count;
        const Values back = decoded(*codec, code, count);
        for (std::size_t i = 0; i < lacking; ++i) ASSERT_EQ(back[i], 0) << spec;
      }
  }
}

// A coefficient of n values may be sqrt(n) times as large as they are.
TEST(TransformedCodecs, HaveNoCodeForCoefficientsBeyond2To50AndKeepTheirStateThen) {
  struct Try {
    std::string spec;
    float value;
    float residual;
  };
  for (const auto& [spec, value, owed] :
       {Try{"dct+topk:0.1", 0x1p48F, 0}, Try{"dct+topk:0.1", 0x1p46F, 0x1p47F}, Try{"dct:ef=0+topk:0.1", 0x1p48F, 0},
        Try{"hadamard:1024+topk:0.1+int8", 0x1p50F, 1}, Try{"dct+threshold:0.1", 0x1p48F, 1}}) {
    const auto codec = make_codec(spec);
    const Values before(1024, owed);
    Values residual = before;
    EXPECT_TRUE(encoded(*codec, Values(1024, value), 7, {.residual = residual}).empty()) << spec;
    EXPECT_EQ(residual, before) << spec;
  }
}

// Errors are summed up with the values, their signs and ones as weights, once for each key: what is biased, towards
// zero or to one side, is biased there too. The mean of such a sum over many keys is nearly normal, and is compared
// with 6 of its deviations, which chance exceeds with a probability of 2e-9; for all specs and weights together, 1e-7.
TEST(UnbiasedCodecs, HaveTheValueAsTheirExpectation) {
  // A Hadamard transform is nearly a random rotation only of many values: eden is given a whole block of them.
  constexpr std::size_t count = 1024;
  constexpr int keys = 2000;
  for (const std::string spec :
       {"natural", "qsgd:7", "qsgd:2,norm=l2", "terngrad:clip=0", "int8:rounding=stochastic",
        "int4:rounding=stochastic", "hadamard:32+int4:rounding=stochastic", "eden:ef=0", "eden:2", "eden:4"}) {
    const auto codec = make_codec(spec);
    EXPECT_EQ(codec->state_parts(), 0U) << spec;
    const Values values = values_of(spec.starts_with("eden") ? Kind::normal : Kind::skewed, count);
    std::array<double, 3> sums{}, squares{};
    for (int key = 0; key < keys; ++key) {
      const Values back = decoded(*codec, encoded(*codec, values, static_cast<std::uint64_t>(key)), count);
      std::array<double, 3> weighted{};
      for (std::size_t i = 0; i < count; ++i) {
        const auto value = static_cast<double>(values[i]);
        const double error = static_cast<double>(back[i]) - value;
        weighted[0] += error * value;
        weighted[1] += value < 0 ? -error : error;
        weighted[2] += error;
      }
      for (std::size_t i = 0; i < weighted.size(); ++i) {
        sums[i] += weighted[i];
        squares[i] += weighted[i] * weighted[i];
      }
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double mean = sums[i] / keys;
      const double deviation = std::sqrt((squares[i] / keys - mean * mean) / keys);
      EXPECT_LE(std::fabs(mean), 6 * deviation + 1e-6 * norm(values)) << spec << ", weight " << i;
    }
  }
}

// Value by value, where few values have most of the norm: a mean error over its deviation is nearly normal, and the
// mean square of 4096 of them, which is 1 with a deviation of 0.022, is compared with 1.13: a false alarm of 2e-9 each.
// One randomized Hadamard transform of few values is no random rotation: behind `eden` alone some of them are far off.
TEST(UnbiasedCodecs, AreSoForEachValueOfHeavyTails) {
  constexpr std::size_t count = 4096;
  constexpr int keys = 400;
  std::mt19937 random(5);
  std::cauchy_distribution<float> cauchy(0, 1e-3F);
  Values values(count);
  for (float& value : values) value = std::clamp(cauchy(random), -100.0F, 100.0F);
  const auto mean_square_of = [&](const std::string& spec) {
    const auto codec = make_codec(spec);
    std::vector<double> sums(count), squares(count);
    for (std::uint64_t key = 0; key < keys; ++key) {
      const Values back = decoded(*codec, encoded(*codec, values, key), count);
      for (std::size_t i = 0; i < count; ++i) {
        const double error = static_cast<double>(back[i]) - static_cast<double>(values[i]);
        sums[i] += error;
        squares[i] += error * error;
      }
    }
    double total = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double mean = sums[i] / keys, variance = squares[i] / keys - mean * mean;
      total += mean * mean / (variance / keys);
    }
    return total / count;
  };
  for (const std::string spec : {"hadamard:1024+eden", "hadamard:1024+eden:2", "hadamard:1024+eden:4",
                                 "hadamard:1024+int4:rounding=stochastic", "dct+qsgd:7"})
    EXPECT_LT(mean_square_of(spec), 1.13) << spec;
  EXPECT_GT(mean_square_of("eden"), 2);
}

// The conservation that makes error feedback converge: what arrived so far, and what is held back, is all there was.
TEST(ErrorFeedback, LosesNothingOverManySteps) {
  for (const std::string spec : {"sign", "topk:0.02+int4", "int2", "hadamard:32+int4", "fp8", "terngrad:ef=1"}) {
    const auto codec = make_codec(spec);
    ASSERT_EQ(codec->state_parts(), 1U) << spec;
    Values residual(3000), arrived(3000), given(3000);
    for (unsigned step = 0; step < 20; ++step) {
      const Values values = values_of(Kind::normal, 3000, step);
      const Values back = decoded(*codec, encoded(*codec, values, step, {.residual = residual}), 3000);
      for (std::size_t i = 0; i < back.size(); ++i) {
        arrived[i] += back[i];
        given[i] += values[i];
      }
    }
    for (std::size_t i = 0; i < given.size(); ++i) ASSERT_NEAR(arrived[i] + residual[i], given[i], 1e-4) << spec;
  }
}

}  // namespace
}  // namespace ranvier::testing
