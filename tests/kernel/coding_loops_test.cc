// The loops of codecs, with every instruction set: against the same thing done slowly, and all with the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "kernel/codebook.h"
#include "kernel/grid.h"
#include "kernel/hadamard.h"
#include "kernel/instruction_sets.h"
#include "kernel/pack.h"
#include "kernel/select.h"
#include "kernel/small_floats.h"
#include "kernel/symbols.h"
#include "kernel/transpose.h"
#include "kernel/vectors.h"

namespace ranvier::testing {
namespace {

constexpr std::size_t lengths[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 1000, 4095, 4096};

std::vector<float> normal_values(std::size_t count, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

class CodingLoops : public EachInstructionSet {};

TEST_P(CodingLoops, SumsAndLargestAreThoseOfASlowLoop) {
  for (const std::size_t count : lengths) {
    const auto values = normal_values(count), other = normal_values(count, 2);
    double squares = 0, magnitudes = 0, product = 0, largest = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(values[i]);
      squares += value * value;
      magnitudes += std::fabs(value);
      product += value * static_cast<double>(other[i]);
      largest = std::max(largest, std::fabs(value));
    }
    EXPECT_NEAR(kernel::sum_of_squares(values.data(), count), squares, 1e-5 * squares);
    EXPECT_NEAR(kernel::sum_of_magnitudes(values.data(), count), magnitudes, 1e-5 * magnitudes);
    EXPECT_NEAR(kernel::dot(values.data(), other.data(), count), product, 1e-5 * squares + 1e-12);
    EXPECT_EQ(kernel::largest_magnitude(values.data(), count), static_cast<float>(largest));
    const auto tail = kernel::tail_of(values.data(), count, 0.7F);
    double above = 0;
    for (const float value : values) above += std::fabs(value) >= 0.7F ? static_cast<double>(std::fabs(value)) : 0;
    EXPECT_NEAR(tail.sum, above, 1e-5 * squares);
    EXPECT_EQ(tail.count, static_cast<std::size_t>(
                              std::ranges::count_if(values, [](float value) { return std::fabs(value) >= 0.7F; })));
  }
}

TEST_P(CodingLoops, TransposesMatricesWithinLargerOnes) {
  for (const std::size_t rows : {1, 15, 16, 33})
    for (const std::size_t columns : {1, 16, 31, 64}) {
      const std::size_t from_stride = columns + 3, to_stride = rows + 5;
      const auto from = normal_values(rows * from_stride);
      std::vector<float> to(columns * to_stride, 7);
      kernel::transpose(from.data(), rows, columns, from_stride, to.data(), to_stride);
      for (std::size_t j = 0; j < columns; ++j)
        for (std::size_t i = 0; i < to_stride; ++i)
          ASSERT_EQ(to[j * to_stride + i], i < rows ? from[i * from_stride + j] : 7) << rows << " x " << columns;
    }
}

TEST_P(CodingLoops, SquaresAndProductsBeyondTheRangeOfFloatsAreAddedUp) {
  for (const std::size_t count : {1, 15, 100, 4096, 9000})
    for (const int exponent : {-140, -120, -80, -65, -50, -45, -42, -30, 30, 62, 66, 100, 120}) {
      auto values = normal_values(count);
      const auto other = normal_values(count, 2);
      double squares = 0, product = 0, magnitudes = 0;
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = std::ldexp(values[i], exponent);
        squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
        product += static_cast<double>(values[i]) * static_cast<double>(other[i]);
        magnitudes += std::fabs(static_cast<double>(values[i]) * static_cast<double>(other[i]));
      }
      EXPECT_NEAR(kernel::sum_of_squares(values.data(), count), squares, 1e-6 * squares) << count << ' ' << exponent;
      EXPECT_NEAR(kernel::dot(values.data(), other.data(), count), product, 1e-6 * magnitudes) << exponent;
    }
  // Runs of their own range each: what one of them adds up to says nothing of another.
  std::vector<float> mixed(2 * 4096, 1e-25F);
  std::fill_n(mixed.begin(), 4096, 1e-15F);
  EXPECT_NEAR(kernel::sum_of_squares(mixed.data(), mixed.size()), 4096 * (1e-30 + 1e-50), 1e-32);
  EXPECT_NEAR(kernel::sum_of_squares(mixed.data() + 4096, 4096), 4096e-50, 1e-52);
  EXPECT_TRUE(std::isnan(kernel::sum_of_squares(std::vector<float>{1, NAN}.data(), 2)));
  EXPECT_EQ(kernel::sum_of_squares(std::vector<float>{1, INFINITY}.data(), 2), INFINITY);
}

TEST_P(CodingLoops, TheLargestMagnitudeShowsWhatIsNotFinite) {
  for (const std::size_t place : {0, 15, 16, 99}) {
    auto values = normal_values(100);
    values[place] = -INFINITY;
    EXPECT_EQ(kernel::largest_magnitude(values.data(), 100), INFINITY);
    values[50] = NAN;
    EXPECT_TRUE(std::isnan(kernel::largest_magnitude(values.data(), 100)));
  }
}

TEST_P(CodingLoops, AddsAndMeasuresAtOnce) {
  for (const std::size_t count : lengths) {
    const auto values = normal_values(count);
    auto sums = normal_values(count), expected = sums;
    std::ranges::reverse(sums);
    std::ranges::reverse(expected);
    kernel::add(values.data(), expected.data(), expected.data(), count);
    EXPECT_EQ(kernel::add_and_measure(values.data(), sums.data(), count),
              kernel::largest_magnitude(expected.data(), count));
    EXPECT_EQ(sums, expected);
  }
}

TEST_P(CodingLoops, AddsMomentumAndWhatIsHeldBackAtOnce) {
  for (const std::size_t count : lengths) {
    const auto values = normal_values(count);
    auto velocity = values, residual = values;
    std::ranges::reverse(velocity);
    const auto before = velocity;
    kernel::add_momentum(values.data(), 0.5F, velocity.data(), residual.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      ASSERT_FLOAT_EQ(velocity[i], 0.5F * before[i] + values[i]);
      ASSERT_EQ(residual[i], values[i] + velocity[i]);
    }
  }
}

// Rounded once or twice, as the instruction set can, but all values alike, also those behind the last whole vector.
TEST_P(CodingLoops, DescendsByOneRuleForAllValues) {
  for (const std::size_t count : lengths) {
    const auto gradient = normal_values(count), before = normal_values(count, 2);
    std::vector<float> fused(count), rounded_twice(count);
    for (std::size_t i = 0; i < count; ++i) {
      fused[i] = std::fma(-0.1F, gradient[i], before[i]);
      const volatile float product = 0.1F * gradient[i];
      rounded_twice[i] = before[i] - product;
    }
    auto values = before;
    kernel::descend(gradient.data(), 0.1F, values.data(), count);
    EXPECT_TRUE(values == fused || values == rounded_twice) << count;
  }
}

TEST_P(CodingLoops, HadamardIsTheMatrixOfItsDefinition) {
  // Entry (i, j) is -1 to the number of bits that i and j share, over the square root of the size.
  for (const std::size_t size : {1, 2, 8, 16, 32, 64, 256}) {
    const auto values = normal_values(size);
    auto with_signs = values, transformed = values;
    kernel::hadamard(transformed.data(), size, size, 5);
    // A transform of one value is its sign; of the values one by one, all the signs.
    for (std::size_t i = 0; i < size; ++i) {
      std::vector<float> unit(size);
      unit[i] = 1;
      kernel::hadamard(unit.data(), size, size, 5);
      with_signs[i] = unit[0] > 0 ? values[i] : -values[i];
    }
    for (std::size_t i = 0; i < size; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < size; ++j)
        sum += (__builtin_popcountll(i & j) % 2 == 0 ? 1 : -1) * static_cast<double>(with_signs[j]);
      ASSERT_NEAR(transformed[i], sum / std::sqrt(static_cast<double>(size)), 1e-5) << i << " of " << size;
    }
  }
}

TEST_P(CodingLoops, HadamardKeepsTheNormAndComesBack) {
  for (const std::size_t count : lengths)
    for (const std::size_t block : {8, 32, 1024}) {
      const auto values = normal_values(count);
      auto transformed = values;
      kernel::hadamard(transformed.data(), count, block, 9);
      EXPECT_NEAR(kernel::sum_of_squares(transformed.data(), count), kernel::sum_of_squares(values.data(), count),
                  1e-4 * static_cast<double>(count));
      kernel::inverse_hadamard(transformed.data(), count, block, 9);
      for (std::size_t i = 0; i < count; ++i) ASSERT_NEAR(transformed[i], values[i], 1e-5);
    }
}

TEST_P(CodingLoops, PackedSymbolsComeBackAndTakeWhatTheyShould) {
  std::mt19937 random(3);
  for (const unsigned levels : {2, 3, 4, 5, 8, 9, 15, 16, 17, 256})
    for (const std::size_t count : lengths) {
      std::vector<std::uint8_t> symbols(count), back(count);
      for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(random() % levels);
      std::vector<std::uint8_t> packed(kernel::packed_bytes(levels, count) + 1, 0xA5);
      kernel::pack(levels, symbols.data(), count, packed.data());
      EXPECT_EQ(packed.back(), 0xA5) << "written behind the end";
      kernel::unpack(levels, packed.data(), count, back.data());
      ASSERT_EQ(back, symbols) << levels << " levels, " << count;
    }
  EXPECT_EQ(kernel::packed_bytes(2, 9), 2U);
  EXPECT_EQ(kernel::packed_bytes(3, 11), 3U);
  EXPECT_EQ(kernel::packed_bytes(8, 8), 3U);
}

TEST_P(CodingLoops, ExtremesAreTheLeastAndTheGreatest) {
  std::mt19937 random(4);
  for (const std::size_t count : lengths)
    for (const std::size_t at : {std::size_t{0}, count / 2, count - std::min(count, std::size_t{1})}) {
      std::vector<std::uint8_t> symbols(count);
      for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(100 + random() % 50);
      if (count > 1) {
        symbols[at] = 3;
        symbols[(at + 1) % count] = 250;
      }
      const auto [least, most] = kernel::extremes_of(symbols.data(), count);
      EXPECT_EQ(least, count > 0 ? *std::ranges::min_element(symbols) : 255) << count;
      EXPECT_EQ(most, count > 0 ? *std::ranges::max_element(symbols) : 0) << count;
    }
}

TEST_P(CodingLoops, SelectionAgreesWithSorting) {
  for (const std::size_t count : {1, 64, 65, 1000, 4096}) {
    auto values = normal_values(count);
    if (count > 100) std::fill_n(values.begin(), 50, -0.5F);  // ties
    std::vector<float> sorted;
    for (const float value : values) sorted.push_back(std::fabs(value));
    std::ranges::sort(sorted, std::greater<>());
    for (const std::size_t k : {std::size_t{1}, (count + 1) / 2, count})
      EXPECT_EQ(kernel::kth_magnitude(values.data(), count, k), sorted[k - 1]);
    for (const float threshold : {0.0F, 0.5F, 1.0F, 100.0F}) {
      std::vector<std::uint32_t> expected;
      for (std::size_t i = 0; i < count; ++i)
        if (std::fabs(values[i]) >= threshold) expected.push_back(static_cast<std::uint32_t>(i));
      EXPECT_EQ(kernel::count_at_least(values.data(), count, threshold), expected.size());
      for (const std::size_t most : {expected.size(), expected.size() / 2}) {
        std::vector<std::uint32_t> found(most);
        EXPECT_EQ(kernel::collect_at_least(values.data(), count, threshold, found.data(), most), most);
        EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin()));
      }
    }
  }
}

TEST_P(CodingLoops, SymbolsAreNumberedFromTheMiddleOutwards) {
  for (const unsigned zero : {0U, 1U, 5U, 7U, 64U, 127U}) {
    std::vector<std::uint8_t> symbols(256), folded(256), back(256);
    std::iota(symbols.begin(), symbols.end(), std::uint8_t{0});
    auto expected = symbols;  // symbols beyond 2 * zero stay
    std::stable_sort(expected.begin(), expected.begin() + 2 * zero + 1, [&](std::uint8_t a, std::uint8_t b) {
      return std::abs(int{a} - static_cast<int>(zero)) < std::abs(int{b} - static_cast<int>(zero));
    });
    kernel::unfold_symbols(zero, symbols.data(), symbols.size(), back.data());
    EXPECT_EQ(back, expected) << zero;
    kernel::fold_symbols(zero, back.data(), back.size(), folded.data());
    EXPECT_EQ(folded, symbols) << zero;
    kernel::fold_symbols(zero, back.data(), back.size(), back.data());
    EXPECT_EQ(back, symbols) << zero;
  }
}

TEST_P(CodingLoops, SmallSymbolsAreCountedAndOthersAreNot) {
  std::mt19937 random(4);
  for (const unsigned kinds : {1U, 3U, 4U, 5U, 11U, 16U, 17U, 256U})
    for (std::size_t count = 0; count < 700; count += count < 140 ? 1 : 97) {
      std::vector<std::uint8_t> symbols(count);
      std::array<std::uint32_t, kernel::small_symbols> expected{}, counts;
      counts.fill(99);
      for (auto& symbol : symbols) {
        symbol = static_cast<std::uint8_t>(random() % kinds);
        if (symbol < expected.size()) ++expected[symbol];
      }
      const std::size_t sum = kernel::count_small(symbols.data(), count, counts);
      ASSERT_EQ(counts, expected) << kinds << ' ' << count;
      ASSERT_EQ(sum, std::accumulate(expected.begin(), expected.end(), std::size_t{0}));
    }
}

TEST_P(CodingLoops, MarkedSymbolsAreTakenAndPutBack) {
  std::mt19937 random(3);
  constexpr std::uint8_t frequent = 7, untouched = 0xEE;
  for (const std::size_t groups : {0, 1, 2, 3, 7, 8, 9, 64, 65, 1000})
    for (const unsigned share : {0U, 1U, 30U, 90U, 100U}) {  // of others, in percent
      std::vector<std::uint8_t> symbols(8 * groups), bits(groups), expected;
      for (auto& symbol : symbols) {
        symbol = random() % 100 < share ? static_cast<std::uint8_t>(random()) : frequent;
        if (symbol != frequent) expected.push_back(symbol);
      }
      kernel::mark_others(symbols.data(), groups, frequent, bits.data());
      for (std::size_t i = 0; i < symbols.size(); ++i) ASSERT_EQ(bits[i / 8] >> i % 8 & 1, symbols[i] != frequent) << i;
      EXPECT_EQ(kernel::count_bits(bits.data(), groups), expected.size());

      std::vector<std::uint8_t> taken(expected.size() + 9, untouched);
      EXPECT_EQ(kernel::take_marked(symbols.data(), bits.data(), groups, taken.data()), taken.data() + expected.size());
      EXPECT_EQ(taken.back(), untouched);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), taken.begin()));

      // In place, the others at the end.
      std::vector<std::uint8_t> joined(symbols.size() - expected.size(), untouched);
      joined.insert(joined.end(), expected.begin(), expected.end());
      const std::uint8_t* next = joined.data() + joined.size() - expected.size();
      const std::uint8_t* const end = joined.data() + joined.size();
      const std::size_t done = kernel::put_marked(bits.data(), groups, frequent, next, end, joined.data());
      EXPECT_TRUE(done == groups || end - next < 8);
      EXPECT_TRUE(std::equal(symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(8 * done), joined.begin()));
      EXPECT_EQ(static_cast<std::size_t>(end - next), expected.size() - kernel::count_bits(bits.data(), done));
    }
}

RANVIER_FOR_EACH_INSTRUCTION_SET(CodingLoops);

// What one machine encodes, another one decodes: the bits must not depend on what it can do.
TEST(CodingLoopsTogether, GiveTheSameBitsOnEveryInstructionSet) {
  constexpr std::size_t count = 1333;
  const auto values = normal_values(count);
  std::vector<float> first;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    std::vector<float> all;
    std::vector<std::uint8_t> symbols(count);
    std::vector<std::uint16_t> scales(count);
    std::vector<float> back(count);
    const auto keep = [&] { all.insert(all.end(), back.begin(), back.end()); };
    for (const bool stochastic : {false, true}) {
      const kernel::Grid grid{.block = 64, .limit = 7, .stochastic = stochastic};
      kernel::to_largest_grid(grid, values.data(), count, scales.data(), 3, symbols.data());
      kernel::from_grid(grid, symbols.data(), count, scales.data(), back.data());
      keep();
    }
    back = values;
    kernel::hadamard(back.data(), count, 256, 1);
    keep();
    kernel::to_powers(values.data(), count, 140, 4, symbols.data());
    kernel::from_powers(symbols.data(), count, 140, back.data());
    keep();
    const kernel::Codebook book{.values = {0.25F, 0.75F, 1.34F, 2.15F}, .half = 4};
    kernel::to_codebook(book, values.data(), 1.1F, count, symbols.data());
    kernel::from_codebook(book, symbols.data(), 0.3F, count, back.data());
    keep();
    if (first.empty()) first = all;
    ASSERT_EQ(0, std::memcmp(all.data(), first.data(), all.size() * sizeof(float))) << hwy::TargetName(target);
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace
}  // namespace ranvier::testing
