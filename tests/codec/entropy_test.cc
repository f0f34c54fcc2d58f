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

// `bound` is what a coder may take over the entropy, given the share of the most frequent symbol.
template <class Bound>
void expect_within(const Coder& coder, Bound bound) {
  for (const Gradient& gradient : recorded_gradients())
    for (const Quantized& quantized : quantized(gradient)) {
      const double over = over_entropy(coder, quantized.symbols), share = share_of_most_frequent(quantized.symbols);
      EXPECT_LE(over, bound(share)) << quantized.name << ": " << entropy_bytes(quantized.symbols)
                                    << " bytes of entropy, the most frequent symbol has a share of " << share;
      ::testing::Test::RecordProperty(std::string(coder.name()) + " " + quantized.name, std::to_string(100 * over));
    }
}

constexpr auto one_percent = [](double) { return 0.01; };

TEST(Entropy, OfRealGradientsIsReachedByRansWithinOnePercent) { expect_within(*rans(), one_percent); }
TEST(Entropy, OfRealGradientsIsReachedByTheRangeCoderWithinOnePercent) { expect_within(*range_coder(), one_percent); }

// A symbol that comes more than half of the time is worth less than a bit, which no code word can be. Groups of symbols
// make up for most of that; 64 Ki symbols have not the length that groups want.
TEST(Entropy, OfRealGradientsIsReachedByHuffmanWithinThreePercentUnlessOneSymbolPrevails) {
  expect_within(*huffman(), [](double share) { return share < 0.5 ? 0.03 : 0.08; });
}

}  // namespace
}  // namespace ranvier::testing
