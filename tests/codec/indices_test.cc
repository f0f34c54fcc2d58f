#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernel/fenced_memory.h"
#include "ranvier/coding.h"
#include "ranvier/error.h"

namespace ranvier {
namespace {

using Indices = std::vector<std::uint32_t>;
using Code = std::vector<std::byte>;
constexpr IndexCode codes[] = {IndexCode::bitmap, IndexCode::golomb_rice, IndexCode::elias_gamma,
                               IndexCode::elias_delta};

// Each index of the universe with the same probability.
Indices drawn(std::uint32_t universe, double share, unsigned seed) {
  std::mt19937 random(seed);
  std::bernoulli_distribution kept(share);
  Indices indices;
  for (std::uint32_t index = 0; index < universe; ++index)
    if (kept(random)) indices.push_back(index);
  return indices;
}

Code encoded(const Indices& indices, std::uint32_t universe, std::optional<IndexCode> wanted = {}) {
  const std::size_t room = wanted ? index_bytes(indices, universe, *wanted) : max_index_bytes(indices.size(), universe);
  testing::FencedMemory memory(room);
  const auto out = memory.take(room, 0);
  const std::size_t length = encode_indices(indices, universe, out, wanted);
  EXPECT_TRUE(memory.intact());
  return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(length)};
}

Indices decoded(const Code& code, std::uint32_t universe, std::size_t count) {
  testing::FencedMemory memory(code.size());
  const auto input = memory.take(code.size(), 0);
  std::ranges::copy(code, input.begin());
  Indices indices(count);
  decode_indices(input, universe, indices);
  return indices;
}

bool accepts(const Code& code, std::uint32_t universe, std::size_t count) {
  try {
    const Indices indices = decoded(code, universe, count);
    EXPECT_TRUE(std::ranges::is_sorted(indices, std::ranges::less_equal()) || count < 2);
    EXPECT_TRUE(indices.empty() || indices.back() < universe);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    return false;
  }
}

std::vector<std::pair<Indices, std::uint32_t>> sets() {
  std::vector<std::pair<Indices, std::uint32_t>> all;
  for (const std::uint32_t universe : {1U, 2U, 7U, 8U, 9U, 63U, 64U, 65U, 1000U, 4097U, 100000U})
    for (const double share : {0.0, 0.001, 0.01, 0.1, 0.5, 0.9, 1.0})
      all.emplace_back(drawn(universe, share, universe), universe);
  constexpr std::uint32_t most = 0xFFFFFFFF;
  all.emplace_back(Indices{0}, most);
  all.emplace_back(Indices{most - 1}, most);
  all.emplace_back(Indices{0, most - 1}, most);
  all.emplace_back(Indices{5, 6, 7, most / 2, most - 3, most - 2}, most);
  return all;
}

TEST(Indices, ReturnAsTheyWentIn) {
  for (const auto& [indices, universe] : sets()) {
    ASSERT_EQ(decoded(encoded(indices, universe), universe, indices.size()), indices) << universe;
    for (const IndexCode code : codes) {
      if (code == IndexCode::bitmap && universe > 1U << 20) continue;
      const Code written = encoded(indices, universe, code);
      ASSERT_EQ(written.size(), index_bytes(indices, universe, code)) << name_of(code) << ' ' << universe;
      ASSERT_EQ(decoded(written, universe, indices.size()), indices) << name_of(code) << ' ' << universe;
    }
  }
}

TEST(Indices, TakeTheShortestCodeAndNeverMoreThanTheMaximum) {
  for (const auto& [indices, universe] : sets()) {
    const std::size_t length = encoded(indices, universe).size();
    EXPECT_LE(length, max_index_bytes(indices.size(), universe));
    EXPECT_LE(max_index_bytes(indices.size(), universe), 1 + (universe + 7ULL) / 8);
    for (const IndexCode code : codes) EXPECT_LE(length, index_bytes(indices, universe, code)) << name_of(code);
  }
}

// One percent of indices have 8.08 bits of entropy each.
TEST(Indices, AtOnePercentTakeLessThanEightAndAHalfBits) {
  constexpr std::uint32_t universe = 1 << 20;
  const Indices indices = drawn(universe, 0.01, 1);
  const double bits =
      8.0 * static_cast<double>(encoded(indices, universe).size()) / static_cast<double>(indices.size());
  EXPECT_LT(bits, 8.5);
  EXPECT_GT(bits, -std::log2(0.01));
}

TEST(Indices, AreABitmapWhereManyAreTaken) {
  const Indices indices = drawn(1 << 16, 0.5, 2);
  EXPECT_EQ(encoded(indices, 1 << 16).size(), 1U + (1 << 16) / 8);
}

TEST(Indices, MustIncreaseAndLieInTheUniverse) {
  Code out(100);
  for (const Indices& wrong : {Indices{1, 1}, Indices{2, 1}, Indices{10}, Indices{0, 11}}) {
    try {
      encode_indices(wrong, 10, out);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("below 10"));
    }
  }
}

TEST(Indices, RefuseTooLittleRoom) {
  const Indices indices{1, 5, 9};
  Code out(index_bytes(indices, 1000, IndexCode::elias_gamma) - 1);
  EXPECT_THROW(encode_indices(indices, 1000, out, IndexCode::elias_gamma), Error);
}

TEST(Indices, AreNotReadFromCodesOfOtherSizes) {
  for (const auto& [indices, universe] : sets()) {
    if (indices.empty()) continue;
    for (const IndexCode kind : codes) {
      if (kind == IndexCode::bitmap && universe > 1U << 20) continue;
      Code code = encoded(indices, universe, kind);
      EXPECT_FALSE(accepts(code, universe, indices.size() - 1)) << name_of(kind) << ' ' << universe;
      EXPECT_FALSE(accepts(code, universe, indices.size() + 1)) << name_of(kind) << ' ' << universe;
      code.push_back(std::byte{0});
      EXPECT_FALSE(accepts(code, universe, indices.size())) << name_of(kind) << ' ' << universe;
      for (int i = 0; i < 2; ++i) code.pop_back();
      EXPECT_FALSE(accepts(code, universe, indices.size())) << name_of(kind) << ' ' << universe;
    }
  }
}

TEST(Indices, ThatAreReadIncreaseWhateverComes) {
  std::mt19937 random(3);
  const Indices indices = drawn(10000, 0.02, 4);
  for (const IndexCode kind : codes)
    for (int round = 0; round < 2000; ++round) {
      Code code = encoded(indices, 10000, kind);
      for (auto times = 1 + random() % 4; times > 0; --times)
        code[random() % code.size()] = static_cast<std::byte>(random());
      if (random() % 4 == 0) code.resize(1 + random() % code.size());
      accepts(code, 10000, indices.size());
    }
}

}  // namespace
}  // namespace ranvier
