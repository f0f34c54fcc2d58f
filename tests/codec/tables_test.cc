// The parts that coders are made of: bits, tables, frequencies, code lengths, groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "codec/bit_stream.h"
#include "codec/code_lengths.h"
#include "codec/frequencies.h"
#include "codec/histogram.h"
#include "codec/integer_code.h"
#include "codec/symbol_groups.h"

namespace ranvier {
namespace {

TEST(BitStream, GivesBackBitsOfAllWidths) {
  std::mt19937_64 random(1);
  std::vector<std::pair<std::uint64_t, int>> put;
  std::vector<std::byte> memory(100000);
  BitWriter writer(memory);
  for (int i = 0; i < 5000; ++i) {
    const int width = static_cast<int>(random() % 57);
    put.emplace_back(random() & ((std::uint64_t{1} << width) - 1), width);
    writer.put(put.back().first, width);
  }
  const std::size_t bytes = writer.finish();
  ASSERT_TRUE(writer.fits());
  BitReader reader(ConstBytes(memory).first(bytes));
  for (const auto& [bits, width] : put) ASSERT_EQ(reader.take(width), bits);
  EXPECT_TRUE(reader.at_end());
  EXPECT_FALSE(reader.overrun());
  reader.take(1);
  EXPECT_TRUE(reader.overrun());
}

TEST(BitStream, CountsWhatDoesNotFit) {
  std::vector<std::byte> memory(16, std::byte{0xA5});
  BitWriter writer(Bytes(memory).first(3));
  for (int i = 0; i < 4; ++i) writer.put(0x7F, 7);
  EXPECT_EQ(writer.finish(), 4U);
  EXPECT_FALSE(writer.fits());
  EXPECT_EQ(memory[3], std::byte{0xA5});
}

template <class Code>
void expect_code_of(const Code& code, const std::vector<std::uint32_t>& numbers) {
  std::vector<std::byte> memory(1 << 20);
  BitWriter writer(memory);
  std::uint64_t bits = 0;
  for (const std::uint32_t number : numbers) {
    code.put(writer, number);
    bits += static_cast<std::uint64_t>(code.bits(number));
  }
  const std::size_t bytes = writer.finish();
  EXPECT_EQ(bytes, (bits + 7) / 8);
  BitReader reader(ConstBytes(memory).first(bytes));
  for (const std::uint32_t number : numbers) ASSERT_EQ(code.take(reader), number);
  EXPECT_TRUE(reader.at_end());
}

TEST(IntegerCode, OfEveryKindReturnsSmallAndHugeNumbers) {
  std::vector<std::uint32_t> numbers(300);
  std::iota(numbers.begin(), numbers.end(), 1U);
  expect_code_of(GolombRice{0}, numbers);
  expect_code_of(GolombRice{3}, numbers);
  for (int bit = 8; bit < 32; ++bit)
    for (const std::uint32_t beside : {0U, 1U, 2U}) numbers.push_back((1U << bit) - 1 + beside);
  for (const std::uint32_t number : {0xFFFFFFFEU, 0xFFFFFFFFU}) numbers.push_back(number);
  expect_code_of(EliasGamma(), numbers);
  expect_code_of(EliasDelta(), numbers);
  expect_code_of(GolombRice{20}, numbers);
  expect_code_of(GolombRice{31}, numbers);
}

// As in Elias 1975: gamma of 1 is a single bit, of 9 seven; delta of 16 nine.
TEST(IntegerCode, HasThePublishedLengths) {
  EXPECT_EQ(EliasGamma::bits(1), 1);
  EXPECT_EQ(EliasGamma::bits(9), 7);
  EXPECT_EQ(EliasDelta::bits(1), 1);
  EXPECT_EQ(EliasDelta::bits(16), 9);
  EXPECT_EQ(GolombRice{4}.bits(1), 5U);
  EXPECT_EQ(GolombRice{4}.bits(17), 6U);
}

Histogram drawn_histogram(unsigned seed) {
  std::mt19937 random(seed);
  Histogram histogram{};
  const auto symbols = static_cast<unsigned>(2 + random() % 255);
  std::uniform_real_distribution<double> share(0.01, 1);
  const double steepness = std::uniform_real_distribution<double>(0, 0.5)(random);
  for (unsigned symbol = 0; symbol < symbols; ++symbol)
    histogram[symbol] = static_cast<std::uint32_t>(1e6 * std::exp(-steepness * symbol) * share(random));
  histogram[0] += 1;
  histogram[symbols - 1] += 1;
  return histogram;
}

// Whether symbols are few, are few until late, or are not.
TEST(Histogram, CountsEverySymbolWhereverTheLargeOnesBegin) {
  std::mt19937 random(5);
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{8192}, std::size_t{30'001}})
    for (const std::size_t few : {std::size_t{0}, std::size_t{8191}, std::size_t{8192}, std::size_t{20'000}, count}) {
      std::vector<std::uint8_t> symbols(count);
      Histogram expected{};
      for (std::size_t i = 0; i < count; ++i) {
        symbols[i] = static_cast<std::uint8_t>(i < few ? random() % 16 : random());
        ++expected[symbols[i]];
      }
      ASSERT_EQ(histogram_of(symbols), expected) << count << ' ' << few;
    }
}

TEST(NumberTable, ReturnsAsItWasInTheBitsThatWereSaid) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const NumberTable table = fit(drawn_histogram(seed), 12).of;
    std::vector<std::byte> memory(2000);
    BitWriter writer(memory);
    put_table(writer, table);
    ASSERT_EQ(writer.finish(), (table_bits(table) + 7) / 8);
    BitReader reader(memory);
    NumberTable back;
    ASSERT_TRUE(take_table(reader, 4095, back));
    ASSERT_EQ(back, table);
    BitReader again(memory);
    EXPECT_FALSE(take_table(again, *std::ranges::max_element(table) - 1U, back)) << "a number above the most";
  }
}

TEST(Frequencies, AddUpGiveEverySymbolOneAndCostLittle) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const Histogram histogram = drawn_histogram(seed);
    for (const int bits : {10, 12, 15}) {
      const Frequencies frequencies = fit(histogram, bits);
      ASSERT_EQ(std::accumulate(frequencies.of.begin(), frequencies.of.end(), 0), 1 << bits);
      for (std::size_t symbol = 0; symbol < histogram.size(); ++symbol)
        ASSERT_EQ(frequencies.of[symbol] > 0, histogram[symbol] > 0);
    }
    const double entropy = entropy_bits(histogram);
    EXPECT_GE(cost_bits(histogram, fit(histogram, 15)), entropy * 0.999999);
    EXPECT_LE(cost_bits(histogram, fit(histogram, 15)), entropy * 1.02 + 0.001 * 1e6);
  }
}

// The lengths of a plain Huffman code by the textbook: merge the two rarest, again and again.
double textbook_bits(const Histogram& histogram) {
  std::vector<double> weights;
  for (const std::uint32_t count : histogram)
    if (count > 0) weights.push_back(count);
  double bits = 0;
  while (weights.size() > 1) {
    std::ranges::sort(weights, std::greater());
    const double merged = weights[weights.size() - 1] + weights[weights.size() - 2];
    weights.resize(weights.size() - 2);
    weights.push_back(merged);
    bits += merged;
  }
  return bits;
}

double bits_under(const Histogram& histogram, const NumberTable& lengths) {
  double bits = 0;
  for (std::size_t symbol = 0; symbol < histogram.size(); ++symbol) bits += 1.0 * histogram[symbol] * lengths[symbol];
  return bits;
}

TEST(CodeLengths, AreHuffmansWhereTheLimitDoesNotBindAndFillTheSpaceWhereItDoes) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    const Histogram histogram = drawn_histogram(seed);
    for (const int most : {8, 12, 16}) {
      const NumberTable lengths = code_lengths(histogram, most);
      double space = 0;
      for (std::size_t symbol = 0; symbol < lengths.size(); ++symbol) {
        ASSERT_EQ(lengths[symbol] > 0, histogram[symbol] > 0);
        ASSERT_LE(lengths[symbol], most);
        if (lengths[symbol] > 0) space += std::ldexp(1.0, -lengths[symbol]);
      }
      ASSERT_EQ(space, 1);
      ASSERT_GE(bits_under(histogram, lengths), textbook_bits(histogram));
      if (*std::ranges::max_element(lengths) < most) {
        ASSERT_EQ(bits_under(histogram, lengths), textbook_bits(histogram));
      }
    }
  }
}

// Fibonacci counts make the longest Huffman codes. Against all complete codes of 5 symbols with at most 3 bits.
TEST(CodeLengths, AreTheBestUnderATightLimit) {
  Histogram histogram{};
  constexpr std::array<std::uint32_t, 5> counts{1, 1, 2, 3, 5};
  std::ranges::copy(counts, histogram.begin());
  double best = 1e9;
  for (int code = 0; code < 3 * 3 * 3 * 3 * 3; ++code) {
    double space = 0, bits = 0;
    int rest = code;
    for (const std::uint32_t count : counts) {
      const int length = 1 + rest % 3;
      rest /= 3;
      space += std::ldexp(1.0, -length);
      bits += count * length;
    }
    if (space <= 1) best = std::min(best, bits);
  }
  EXPECT_EQ(bits_under(histogram, code_lengths(histogram, 3)), best);
}

TEST(SymbolGroups, ReturnTheirSymbolsAndRefuseWhatNoGroupIs) {
  std::mt19937 random(2);
  for (unsigned kinds = 2; kinds <= most_grouped_symbols; ++kinds) {
    const std::size_t size = group_size(kinds);
    EXPECT_LE(std::pow(kinds, size), 256);
    EXPECT_GT(std::pow(kinds, size + 1), 256);
    const Alphabet alphabet{static_cast<std::uint8_t>(256 - kinds), kinds};
    for (const std::size_t count : {1, 2, 7, 8, 9, 100, 1001}) {
      std::vector<std::uint8_t> symbols(count);
      for (auto& symbol : symbols) symbol = static_cast<std::uint8_t>(alphabet.least + random() % kinds);
      std::vector<std::uint8_t> groups((count + size - 1) / size), back(count);
      group_symbols(symbols, alphabet, groups);
      ASSERT_TRUE(ungroup_symbols(groups, alphabet, back));
      ASSERT_EQ(back, symbols);
      if (std::pow(kinds, size) < 256) {
        groups.back() = 255;
        EXPECT_FALSE(ungroup_symbols(groups, alphabet, back));
      }
      if (count % size != 0) {
        groups.back() = static_cast<std::uint8_t>(std::pow(kinds, size) - 1);
        EXPECT_FALSE(ungroup_symbols(groups, alphabet, back)) << "what fills the last group is not the least symbol";
      }
    }
  }
}

}  // namespace
}  // namespace ranvier
