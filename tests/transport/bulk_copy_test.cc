#include "transport/bulk_copy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace ranvier::transport {
namespace {

TEST(StreamingCopy, CopiesEveryLengthToEveryAlignmentAndNothingElse) {
  constexpr std::size_t most = 300;
  std::vector<std::byte> source(most + 64);
  std::minstd_rand random(4);
  for (auto& byte : source) byte = static_cast<std::byte>(1 + random() % 255);
  for (std::size_t offset = 0; offset < 64; ++offset) {
    for (std::size_t bytes = 0; bytes <= most; ++bytes) {
      std::vector<std::byte> target(most + 192);
      streaming_copy(target.data() + 64 + offset, source.data() + offset / 2, bytes);
      std::vector<std::byte> expected(target.size());
      std::memcpy(expected.data() + 64 + offset, source.data() + offset / 2, bytes);
      ASSERT_EQ(target, expected) << bytes << " bytes at " << offset;
    }
  }
}

// How many of `pieces` were streamed when the two ways take so many ticks.
int streamed(CopyChooser& chooser, int pieces, std::uint64_t cached_ticks, std::uint64_t streaming_ticks) {
  int count = 0;
  for (int piece = 0; piece < pieces; ++piece) {
    const auto way = chooser.next();
    count += way == CopyChooser::streaming ? 1 : 0;
    chooser.took(way, way == CopyChooser::streaming ? streaming_ticks : cached_ticks, 4096);
  }
  return count;
}

TEST(CopyChooser, FindsTheBetterWayAndFollowsWhenItChanges) {
  constexpr int settling = 20 * CopyChooser::pieces_between_probes;
  CopyChooser chooser;
  streamed(chooser, settling, 1000, 8000);
  EXPECT_LE(streamed(chooser, 1000, 1000, 8000), 4) << "near cores";
  streamed(chooser, settling, 9000, 1000);
  EXPECT_GE(streamed(chooser, 1000, 9000, 1000), 996) << "far cores";
  streamed(chooser, settling, 1000, 1000);
  EXPECT_LE(streamed(chooser, 1000, 1000, 1000), 4) << "streaming burdens the reader";
}

TEST(CopyChooser, IsNotMisledByOnePieceThatTookForever) {
  CopyChooser chooser;
  streamed(chooser, 2000, 1000, 1000);
  chooser.took(CopyChooser::cached, 1'000'000'000, 4096);
  EXPECT_LE(streamed(chooser, 100, 1000, 1000), 1);
}

}  // namespace
}  // namespace ranvier::transport
