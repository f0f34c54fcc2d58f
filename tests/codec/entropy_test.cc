// How near the coders come to the entropy of symbols that real training makes.
#include <gtest/gtest.h>

#include "codec/gradients.h"
#include "ranvier/coding.h"

namespace ranvier::testing {
namespace {

double over_entropy(const Coder& coder, const std::vector<std::uint8_t>& symbols) {
  std::vector<std::byte> code(coder.max_bytes(symbols.size()));
  return static_cast<double>(coder.encode(symbols, code)) / entropy_bytes(symbols) - 1;
}

void expect_within(const Coder& coder, double share) {
  for (const Gradient& gradient : recorded_gradients()) {
    for (const Quantized& quantized : quantized(gradient)) {
      const double over = over_entropy(coder, quantized.symbols);
      EXPECT_LE(over, share) << quantized.name << ": " << entropy_bytes(quantized.symbols) << " bytes of entropy";
      ::testing::Test::RecordProperty(std::string(coder.name()) + " " + quantized.name, std::to_string(100 * over));
    }
  }
}

TEST(Entropy, OfRealGradientsIsReachedByRansWithinOnePercent) { expect_within(*rans(), 0.01); }
TEST(Entropy, OfRealGradientsIsReachedByTheRangeCoderWithinOnePercent) { expect_within(*range_coder(), 0.01); }
TEST(Entropy, OfRealGradientsIsReachedByHuffmanWithinThreePercent) { expect_within(*huffman(), 0.03); }

}  // namespace
}  // namespace ranvier::testing
