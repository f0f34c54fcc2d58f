#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernel/fenced_memory.h"
#include "kernel/instruction_sets.h"
#include "kernel/reference.h"
#include "ranvier/error.h"
#include "ranvier/kernel.h"

namespace ranvier::testing {
namespace {

using Random = std::mt19937_64;

bool is_reducible(ReduceOp op, DType type) {
  return is_defined(op, type) && !(op == ReduceOp::average && type == DType::boolean);
}

std::vector<std::pair<ReduceOp, DType>> all_reductions() {
  std::vector<std::pair<ReduceOp, DType>> all;
  for (const DType type : all_dtypes)
    for (const ReduceOp op : all_reduce_ops)
      if (is_reducible(op, type)) all.emplace_back(op, type);
  return all;
}

using Limits = std::numeric_limits<double>;
constexpr double special_numbers[] = {0.0,
                                      -0.0,
                                      1.0,
                                      -1.0,
                                      Limits::infinity(),
                                      -Limits::infinity(),
                                      Limits::quiet_NaN(),
                                      65504.0,
                                      0x1p-14,
                                      0x1p-24,
                                      0x1.8p-24,
                                      -0x1p-25,
                                      3.4e38,
                                      0x1p-126,
                                      0x1p-140,
                                      -0x1p-149,
                                      0x1.01p0,
                                      0x1.ff8p15,
                                      5e-324,
                                      1.7e308};

std::uint64_t bits_of(DType type, double number) {
  const auto single = static_cast<float>(number);
  if (type == DType::f64) return std::bit_cast<std::uint64_t>(number);
  if (type == DType::f32) return std::bit_cast<std::uint32_t>(single);
  return narrow(single, type == DType::f16 ? f16_format : bf16_format);
}

// Something special, or a value of moderate size.
double draw_number(Random& random) {
  if (random() % 4 == 0) return special_numbers[random() % std::size(special_numbers)];
  return std::ldexp(static_cast<double>(static_cast<std::int64_t>(random())), -63 + static_cast<int>(random() % 6));
}

void write(DType type, std::uint64_t bits, std::byte* to) { std::memcpy(to, &bits, size_of(type)); }  // little-endian

void draw(DType type, std::span<std::byte> to, Random& random) {
  for (std::size_t at = 0; at < to.size(); at += size_of(type)) {
    std::uint64_t bits = random();
    if (type == DType::boolean) bits %= 2;
    if (is_floating(type) && bits % 4 != 0) bits = bits_of(type, draw_number(random));
    write(type, bits, &to[at]);
  }
}

enum class Alias { none, left, right };

class Reduction : public EachInstructionSet {
 protected:
  explicit Reduction(std::size_t most_bytes = 2400) : a_(most_bytes), b_(most_bytes), to_(most_bytes) {}

  // Reduces `count` random elements and compares each with the reference.
  ::testing::AssertionResult check(ReduceOp op, DType type, std::size_t count, Alias alias) {
    static constexpr Rank divisors[] = {0, 1, 2, 3, 8, 300, 100'000};
    const Rank divisor = divisors[random_() % std::size(divisors)];
    const std::size_t width = size_of(type);
    const auto slack = [&] { return random_() % 2 ? 0 : random_() % FencedMemory::margin; };
    const auto a = a_.take(count * width, slack()), b = b_.take(count * width, slack());
    const auto apart = to_.take(count * width, slack());
    const auto to = alias == Alias::left ? a : alias == Alias::right ? b : apart;
    draw(type, a, random_);
    draw(type, b, random_);
    const std::vector<std::byte> a_before(a.begin(), a.end()), b_before(b.begin(), b.end());

    kernel::reduce(op, type, to.data(), a.data(), b.data(), count, divisor);

    std::byte expected[8];
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = i * width;
      reduce_one(op, type, expected, &a_before[at], &b_before[at], divisor);
      if (!same(type, expected, to.data() + at))
        return ::testing::AssertionFailure()
               << name_of(op) << " of " << name_of(type) << ", element " << i << " of " << count << ", divisor "
               << divisor << ": " << ::testing::PrintToString(a_before[at]) << "… gave "
               << ::testing::PrintToString(std::vector(&to[at], &to[at] + width)) << ", expected "
               << ::testing::PrintToString(std::vector(expected, expected + width));
    }
    const bool inputs_kept = (alias == Alias::left || std::ranges::equal(a, a_before)) &&
                             (alias == Alias::right || std::ranges::equal(b, b_before));
    if (!inputs_kept || !a_.intact() || !b_.intact() || !to_.intact())
      return ::testing::AssertionFailure()
             << name_of(op) << " of " << count << " " << name_of(type) << " wrote outside its result";
    return ::testing::AssertionSuccess();
  }

  Random random_{20240229};
  FencedMemory a_, b_, to_;
};

TEST_P(Reduction, EqualsTheScalarOneForEveryTypeOperationCountAndAlias) {
  for (const auto& [op, type] : all_reductions())
    for (std::size_t count = 0; count <= 257; ++count)
      ASSERT_TRUE(check(op, type, count, static_cast<Alias>((count + random_()) % 3)));
}

class LargeReduction : public Reduction {
 protected:
  LargeReduction() : Reduction(std::size_t{4'099} * 8) {}
};

TEST_P(LargeReduction, EqualsTheScalarOneForEveryTypeOperationAndAlias) {
  for (const auto& [op, type] : all_reductions())
    for (const Alias alias : {Alias::none, Alias::left, Alias::right}) ASSERT_TRUE(check(op, type, 4'099, alias));
}

TEST_P(Reduction, OfMinAndMaxHasTheSameBitsInEitherOrderOfOperands) {
  constexpr std::size_t numbers = std::size(special_numbers), count = numbers * numbers;
  for (const DType type : {DType::f32, DType::f64, DType::f16, DType::bf16})
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
      const std::size_t width = size_of(type);
      std::vector<std::byte> a(count * width), b(a.size()), ab(a.size()), ba(a.size());
      for (std::size_t i = 0; i < count; ++i) {
        write(type, bits_of(type, special_numbers[i / numbers]), &a[i * width]);
        write(type, bits_of(type, special_numbers[i % numbers]), &b[i * width]);
      }
      kernel::reduce(op, type, ab.data(), a.data(), b.data(), count, 0);
      kernel::reduce(op, type, ba.data(), b.data(), a.data(), count, 0);
      EXPECT_EQ(ab, ba) << name_of(op) << " of " << name_of(type);
    }
}

TEST_P(Reduction, RoundsAHalfPrecisionAverageOnlyOnce) {
  // 2048 + 3 needs 12 bits: rounded to f16 before the division it would be 2052 and the average 684, not 683.5.
  const std::uint16_t a = narrow(2048, f16_format), b = narrow(3, f16_format);
  std::uint16_t to = 0;
  kernel::reduce(ReduceOp::average, DType::f16, &to, &a, &b, 1, 3);
  EXPECT_EQ(widen(to, f16_format), 683.5F);
}

TEST_P(Reduction, DividesIntegersTowardsZero) {
  const std::int32_t a[] = {-7, 7, std::numeric_limits<std::int32_t>::max()}, b[] = {0, 0, 1};
  std::int32_t to[3] = {};
  kernel::reduce(ReduceOp::average, DType::i32, to, a, b, 3, 2);
  EXPECT_THAT(to, ::testing::ElementsAre(-3, 3, std::numeric_limits<std::int32_t>::min() / 2));
}

TEST_P(Reduction, ThatIsNotDefinedIsRefusedInOneSentence) {
  for (const DType type : all_dtypes)
    for (const ReduceOp op : all_reduce_ops) {
      if (is_reducible(op, type)) {
        EXPECT_NE(kernel::reduce_function(op, type), nullptr);
        continue;
      }
      try {
        kernel::reduce_function(op, type);
        ADD_FAILURE() << name_of(op) << " of " << name_of(type) << " was accepted";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        EXPECT_THAT(error.what(), ::testing::HasSubstr(std::string(name_of(type))));
      }
    }
}

TEST_P(Reduction, UsesTheInstructionSetThatItNames) {
  EXPECT_STREQ(kernel::instruction_set(), hwy::TargetName(GetParam()));
}

RANVIER_FOR_EACH_INSTRUCTION_SET(Reduction);
RANVIER_FOR_EACH_INSTRUCTION_SET(LargeReduction);

}  // namespace
}  // namespace ranvier::testing
