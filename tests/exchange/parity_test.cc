// Pieces that stand in for lost ones.
#include "engine/parity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace ranvier::engine {
namespace {

constexpr std::size_t piece = PartialMessages::piece_bytes;

struct Sent {
  explicit Sent(std::size_t data, unsigned seed) : pieces(data), bytes((data + parity_pieces(data)) * piece) {
    std::mt19937 random(seed);
    std::generate_n(bytes.begin(), data * piece, [&] { return static_cast<std::byte>(random()); });
    clear_parities(bytes, data);
    std::vector<std::size_t> order(data);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::shuffle(order, random);
    for (const std::size_t piece_of_data : order) add_to_parities(bytes, data, piece_of_data);
  }
  std::size_t total() const { return bytes.size() / piece; }

  // Whether it comes back without those pieces, and right: what is lost holds garbage before.
  bool survives(const std::vector<std::size_t>& lost) const {
    std::vector<std::uint8_t> arrived(total(), 1);
    auto message = bytes;
    for (const std::size_t each : lost) {
      arrived[each] = 0;
      std::fill_n(message.begin() + static_cast<std::ptrdiff_t>(each * piece), piece, std::byte{0x5A});
    }
    auto had = arrived;
    if (find_recoverable(had, pieces) > 0) return false;
    recover(message, arrived, pieces);
    EXPECT_EQ(had, arrived);
    EXPECT_TRUE(
        std::equal(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(pieces * piece), message.begin()));
    return true;
  }

  std::size_t pieces;
  std::vector<std::byte> bytes;
};

TEST(Parity, AnyOnePieceOrTwoCanBeLost) {
  for (const std::size_t pieces : {1, 2, 3, 4, 7, 33, 40}) {
    const Sent sent(pieces, static_cast<unsigned>(pieces));
    for (std::size_t a = 0; a < sent.total(); ++a)
      for (std::size_t b = a; b < sent.total(); ++b) {
        // A piece alone in its row and its column has two parities beside it: any two of the three may be lost.
        EXPECT_TRUE(sent.survives({a, b})) << pieces << " pieces without " << a << " and " << b;
      }
  }
}

TEST(Parity, AsManyOneBehindTheOtherAsAGridIsWide) {
  const Sent sent(1500, 1);
  for (std::size_t first = 0; first < 1500; first += 37) {
    std::vector<std::size_t> burst;
    for (std::size_t i = first; i < std::min<std::size_t>(first + 16, 1500); ++i) burst.push_back(i);
    EXPECT_TRUE(sent.survives(burst)) << "from " << first;
  }
}

TEST(Parity, FourCornersAreTooMany) {
  const Sent sent(1024, 1);
  EXPECT_FALSE(sent.survives({0, 5, 32 * 7, 32 * 7 + 5}));
  EXPECT_TRUE(sent.survives({0, 5, 32 * 7}));
}

TEST(Parity, CostsLittleAndNearlyAlwaysSuffices) {
  EXPECT_EQ(parity_pieces(1024), 64U);
  EXPECT_EQ(parity_pieces(256), 32U);
  EXPECT_LE(parity_pieces(100'000), 6500U);
  std::mt19937 random(3);
  const Sent sent(512, 2);
  int whole = 0;
  for (int attempt = 0; attempt < 300; ++attempt) {
    std::vector<std::size_t> lost;
    for (std::size_t each = 0; each < sent.total(); ++each)
      if (random() % 100 == 0) lost.push_back(each);
    whole += sent.survives(lost) ? 1 : 0;
  }
  EXPECT_GE(whole, 296);
}

TEST(Parity, WithoutParitiesNothingComesBack) {
  std::vector<std::uint8_t> arrived(10 + parity_pieces(10), 0);
  std::fill_n(arrived.begin(), 10, 1);
  EXPECT_EQ(find_recoverable(arrived, 10), 0U);
  arrived[3] = arrived[7] = 0;
  EXPECT_EQ(find_recoverable(arrived, 10), 2U);
}

}  // namespace
}  // namespace ranvier::engine
