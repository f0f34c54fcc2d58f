// How near the coders come to the entropy of symbols that real training makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "codec/gradients.h"
#include "ranvier/coding.h"

namespace ranvier::testing {
namespace {

double over_entropy(const Coder& coder, const std::vector<std::uint8_t>& symbols) {
  std::vector<std::byte> code(coder.max_bytes(symbols.size()));
  return static_cast<double>(coder.encode(symbols, code)) / entropy_bytes(symbols) - 1;
}

double share_of_most_frequent(const std::vector<std::uint8_t>& symbols) {
  std::array<std::size_t, 256> counts{};
  for (const std::uint8_t symbol : symbols) ++counts[symbol];
  return static_cast<double>(*std::ranges::max_element(counts)) / static_cast<double>(symbols.size());
}

// `bound`: what a coder may take over the entropy.
void expect_within(const Coder& coder, double bound) {
  for (const Gradient& gradient : recorded_gradients())
    for (const Quantized& quantized : quantized(gradient)) {
      const double over = over_entropy(coder, quantized.symbols);
      EXPECT_LE(over, bound) << quantized.name << ": " << entropy_bytes(quantized.symbols)
                             << " bytes of entropy, the most frequent symbol has a share of "
                             << share_of_most_frequent(quantized.symbols);
      ::testing::Test::RecordProperty(std::string(coder.name()) + " " + quantized.name, std::to_string(100 * over));
    }
}

TEST(Entropy, OfRealGradientsIsReachedByRansWithinOnePercent) { expect_within(*rans(), 0.01); }
TEST(Entropy, OfRealGradientsIsReachedByTheRangeCoderWithinOnePercent) { expect_within(*range_coder(), 0.01); }

TEST(Entropy, OfRealGradientsIsReachedByHuffmanWithinThreePercent) { expect_within(*huffman(), 0.03); }

// Neighbours tell about each other, which the entropy of single symbols leaves out.
TEST(Entropy, OfSymbolsThatAreOftenZeroIsUndercutByABitmap) {
  for (const auto& coder : {rans(), huffman(), range_coder()})
    for (const Gradient& gradient : recorded_gradients())
      for (const Quantized& quantized : quantized(gradient)) {
        if (share_of_most_frequent(quantized.symbols) < 0.6) continue;
        EXPECT_LE(over_entropy(*coder, quantized.symbols), -0.05) << coder->name() << ' ' << quantized.name;
      }
}

}  // namespace
}  // namespace ranvier::testing
